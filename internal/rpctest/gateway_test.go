package rpctest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/idempotency"
	"example.com/idempotency/adapters/grpcidempotency/grpcclient"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/rpc"
	"example.com/idempotency/internal/rpctest/bankv1"
	"example.com/idempotency/internal/rpctest/bankv1/bankv1connect"
	"example.com/idempotency/problem"
)

// gateway returns a mux of grpc-gateway as its users make it.
func gateway(options ...runtime.ServeMuxOption) *runtime.ServeMux {
	outgoing := func(name string) (string, bool) { return runtime.MetadataHeaderPrefix + name, true }
	return runtime.NewServeMux(append(options,
		runtime.WithIncomingHeaderMatcher(grpcclient.IncomingHeader(func(name string) (string, bool) {
			if name == "Tenant" {
				return "tenant", true
			}
			return runtime.DefaultHeaderMatcher(name)
		})),
		runtime.WithOutgoingHeaderMatcher(grpcclient.OutgoingHeader(outgoing)),
	)...)
}

// A paid is what an HTTP client of the gateway gets.
type paid struct {
	StatusCode int
	Header     http.Header
	Body       string
}

// pay sends a call in JSON.
func pay(t *testing.T, url, key, name string, amount int) paid {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/payments",
		strings.NewReader(fmt.Sprintf(`{"case": %q, "amount": "%d"}`, name, amount)))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Tenant", "acme")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return paid{res.StatusCode, res.Header, string(body)}
}

// The service has the guard, and the gateway reaches it over the network.
func TestGatewayOverTheWire(t *testing.T) {
	b, guard := newBank(), newGuard(t, idempotency.NewMemoryStore())
	mux := gateway()
	require.NoError(t, bankv1.RegisterBankHandler(t.Context(), mux, dial(t, serveGRPC(t, b, guard, settings{hold: []string{bankv1.Bank_Pay_FullMethodName}}))))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	first := pay(t, server.URL, `"key"`, "plain", 100)
	require.Equal(t, http.StatusOK, first.StatusCode)
	again := pay(t, server.URL, "key", "plain", 100)
	require.Equal(t, http.StatusOK, again.StatusCode)
	require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	require.JSONEq(t, first.Body, again.Body)
	require.Equal(t, 1, b.ran("plain"))

	for _, tt := range []struct {
		key, name string
		amount    int
		status    int
		problem   string
	}{
		{"key", "plain", 999, http.StatusBadRequest, "key-reused"},
		{"bad,key", "plain", 100, http.StatusBadRequest, "key-invalid"},
		{"fails", "code 14", 100, http.StatusServiceUnavailable, ""},
		{"fails", "code 14", 100, http.StatusBadRequest, "outcome-unknown"},
		{"refused", "code 5", 100, http.StatusNotFound, ""},
	} {
		res := pay(t, server.URL, tt.key, tt.name, tt.amount)
		require.Equal(t, tt.status, res.StatusCode, tt)
		require.Equal(t, tt.problem, res.Header.Get("Idempotency-Error"), tt)
	}
	require.Equal(t, "true", pay(t, server.URL, "refused", "code 5", 100).Header.Get("Idempotent-Replayed"))

	// A call in flight, with what tells an HTTP client to come back.
	done := make(chan paid)
	go func() { done <- pay(t, server.URL, "slow", "slow", 100) }() //nolint:testifylint // a failure ends it, and the test waits for it
	<-b.entered
	busy := pay(t, server.URL, "slow", "slow", 100)
	require.Equal(t, http.StatusConflict, busy.StatusCode)
	require.Equal(t, "in-flight", busy.Header.Get("Idempotency-Error"))
	require.Equal(t, "1", busy.Header.Get("Retry-After"))
	close(b.release)
	require.Equal(t, http.StatusOK, (<-done).StatusCode)
}

// A gateway as grpc-gateway's own examples make it drops the key. The first call tells, whether a key is
// demanded or not; a gateway that hands on keys has nothing to tell.
func TestGatewayThatDropsTheKey(t *testing.T) {
	for _, required := range []bool{false, true} {
		for name, mux := range map[string]*runtime.ServeMux{
			"plain": runtime.NewServeMux(runtime.WithMetadata(func(context.Context, *http.Request) metadata.MD {
				return metadata.Pairs("tenant", "acme")
			})),
			"with the matcher": gateway(),
		} {
			var events eventLog
			b := newBank()
			guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.observe), idempotency.WithRequired(required))
			require.NoError(t, bankv1.RegisterBankHandler(t.Context(), mux, dial(t, serveGRPC(t, b, guard, settings{}))))
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			for i := range 2 {
				got := pay(t, server.URL, "key", "plain", 100)
				e := events.last(t, i+1)
				switch {
				case name != "plain":
					require.NoError(t, e.Err)
					require.Equal(t, http.StatusOK, got.StatusCode)
					continue
				case required:
					require.Equal(t, problem.KeyMissing, e.Code)
				default:
					require.Equal(t, event.Bypassed, e.Kind)
				}
				if i == 0 {
					require.ErrorContains(t, e.Err, "grpcclient.IncomingHeader")
				} else {
					require.NoError(t, e.Err)
				}
			}
		}
	}
}

// The gateway has the guard, and calls the service in its own process: the service finds the run.
func TestGatewayInProcess(t *testing.T) {
	b, guard := newBank(), newGuard(t, idempotency.NewMemoryStore())
	mux := gateway()
	require.NoError(t, bankv1.RegisterBankHandlerServer(t.Context(), mux, &grpcBank{bank: b}))
	server := httptest.NewServer(guard.Handler(mux))
	t.Cleanup(server.Close)
	for i, name := range []string{"plain", "code 5"} {
		key := fmt.Sprint("key", i)
		first, again := pay(t, server.URL, key, name, 100), pay(t, server.URL, key, name, 100)
		require.Empty(t, first.Header.Get("Idempotent-Replayed"))
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		require.Equal(t, first.StatusCode, again.StatusCode)
		require.Equal(t, []int{1}, b.attemptsOf(name))
	}
	for range 2 { // the gateway makes 503 of UNAVAILABLE, whose outcome is unknown
		require.Equal(t, http.StatusServiceUnavailable, pay(t, server.URL, "fails", "code 14", 100).StatusCode)
	}
	require.Equal(t, []int{1, 2}, b.attemptsOf("code 14"))
}

// The guard of a gateway judges by the status that the gateway makes of a code. No outcome that the code leaves
// open is recorded, with the option of the README for ABORTED.
func TestGatewayInProcessLeavesOpenWhatTheCodeLeavesOpen(t *testing.T) {
	b := newBank()
	mux := gateway(runtime.WithErrorHandler(func(ctx context.Context, mux *runtime.ServeMux, m runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
		if op, ok := idempotency.FromContext(r.Context()); ok && status.Code(err) == codes.Aborted {
			op.SetOutcome(idempotency.Unknown)
		}
		runtime.DefaultHTTPErrorHandler(ctx, mux, m, w, r, err)
	}))
	require.NoError(t, bankv1.RegisterBankHandlerServer(t.Context(), mux, &grpcBank{bank: b}))
	server := httptest.NewServer(newGuard(t, idempotency.NewMemoryStore()).Handler(mux))
	t.Cleanup(server.Close)
	for code := rpc.Canceled; code <= rpc.Unauthenticated; code++ {
		name, runs := fmt.Sprint("code ", code), 2
		if code.Outcome() == idempotency.Final && code != rpc.Unimplemented { // whose status is 501
			runs = 1
		}
		for range 2 {
			pay(t, server.URL, fmt.Sprint("key", code), name, 100)
		}
		require.Equal(t, runs, b.ran(name), name)
	}
}

// The gateway has a guard, and so has the service, over the network and in one store: each tier has
// a scope of its own, and the key is the same.
func TestGatewayWithAGuardOfItsOwn(t *testing.T) {
	store := idempotency.NewMemoryStore()
	b := newBank()
	service := newGuard(t, store)
	mux := gateway()
	require.NoError(t, bankv1.RegisterBankHandler(context.WithoutCancel(t.Context()), mux, dial(t, serveGRPC(t, b, service, settings{}))))
	server := httptest.NewServer(newGuard(t, store).Handler(mux))
	t.Cleanup(server.Close)
	first, again := pay(t, server.URL, "key", "plain", 100), pay(t, server.URL, "key", "plain", 100)
	require.Equal(t, http.StatusOK, first.StatusCode)
	require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
	require.Equal(t, 1, b.ran("plain"))
	_, err := service.Lookup(t.Context(), idempotency.Key{Scope: "acme", Value: "key"})
	require.NoError(t, err, "the service has recorded it under the key of the HTTP client")
}

// The first try: a guard around a handler of Connect. It must not record that a call has failed as
// if it had succeeded, so it refuses calls.
func TestGuardAroundAHandlerRefusesCalls(t *testing.T) {
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithClientOptions(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBank()
			_, handler := bankv1connect.NewBankHandler(&connectBank{b})
			refusals := make(chan event.Event, 2)
			guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(func(_ context.Context, e event.Event) {
				if e.Kind == event.Refused {
					refusals <- e
				}
			}))
			c := connectClient(t, serveH2C(t, guard.Handler(handler)), protocol)
			for _, name := range []string{"plain", "code 14"} {
				got := c(t.Context(), keyed("key", name))
				require.NotZero(t, got.Code)
				refusal := <-refusals
				require.Equal(t, problem.FingerprintFailed, refusal.Code)
				require.ErrorContains(t, refusal.Err, "connectidempotency")
				require.Zero(t, b.ran(name))
			}
			send := keyed("", "plain")
			delete(send.md, "idempotency-key")
			require.Zero(t, c(t.Context(), send).Code)
		})
	}
}
