package wiretest

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Each refusal names its code in a field of its own, whatever the application makes of the
// body; no other answer has the field.
func TestRefusalNamesItsCodeUnderAnErrorWriter(t *testing.T) {
	t.Parallel()
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRequired(true),
		idempotency.WithErrorWriter(func(w http.ResponseWriter, _ *http.Request, _ problem.Document) {
			http.Error(w, "no", http.StatusTeapot)
		}))
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(guardtest.Answering(0, "done")))
	mux.Handle("/keys", guard.LookupHandler())
	s := guardtest.ServeRecorder(t, mux)
	lookup := guardtest.Call{Method: http.MethodGet, Path: "/keys", Key: "k", NoBody: true}
	for _, c := range []struct {
		call guardtest.Call
		want problem.Code
	}{
		{guardtest.Call{}, problem.KeyMissing},
		{lookup, problem.KeyUnknown},
		{guardtest.Call{Key: "k"}, ""},
		{guardtest.Call{Key: "k"}, ""},
		{guardtest.Call{Key: "k", Body: "other"}, problem.KeyReused},
		{guardtest.Call{Key: "a,b"}, problem.KeyInvalid},
		{lookup, ""},
	} {
		got := s.Do(t, c.call)
		require.Equal(t, string(c.want), got.Header.Get(problem.Header))
		require.Equal(t, c.want != "", got.Status == http.StatusTeapot)
	}
}

// A request that a function of the route refuses tells the operator why, and the client only
// what it can do about it.
func TestCauseOfARefusalIsReported(t *testing.T) {
	t.Parallel()
	away := errors.New("jwks.internal: connection refused")
	tests := map[string]struct {
		cause  error
		status int
		code   problem.Code // 0 stands for the code of the function
	}{
		"no reason":         {away, 0, ""},
		"try later":         {fmt.Errorf("%w: %w", idempotency.ErrTryLater, away), http.StatusServiceUnavailable, problem.TryLater},
		"not authenticated": {fmt.Errorf("%w: %w", idempotency.ErrUnauthenticated, away), http.StatusUnauthorized, problem.Unauthenticated},
	}
	functions := map[string]struct {
		code    problem.Code
		options func(err error) (idempotency.ScopeFunc, idempotency.Option)
	}{
		"scope": {problem.ScopeUnresolved, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return func(*http.Request) (string, error) { return "", err }, nil
		}},
		"key": {problem.KeyInvalid, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return guardtest.TenantScope, idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", err })
		}},
		"fingerprint": {problem.FingerprintFailed, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return guardtest.TenantScope, idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) {
				return idempotency.Fingerprint{}, err
			})
		}},
		"replay": {problem.ReplayDenied, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return guardtest.TenantScope, idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error { return err })
		}},
	}
	for what, tt := range tests {
		for name, f := range functions {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				code, status := tt.code, tt.status
				if code == "" || code == problem.Unauthenticated && name != "scope" {
					code, status = f.code, problem.New(f.code).Status
				}
				var events guardtest.Events
				var log guardtest.LockedBuffer
				scope, opt := f.options(tt.cause)
				g, err := idempotency.New(idempotency.NewMemoryStore(), scope, opt, idempotency.WithObserver(events.Observe),
					idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				s := guardtest.ServeRecorder(t, g.Handler(new(guardtest.Counter)))
				if name == "replay" {
					s.Do(t, guardtest.Call{Key: "k"})
				}
				got := s.Do(t, guardtest.Call{Key: "k"})
				guardtest.RequireProblem(t, got, status, code)
				require.NotContains(t, got.Body, "jwks")
				require.Len(t, events.Errors(), 1)
				require.ErrorIs(t, events.Errors()[0], away)
				require.Contains(t, log.String(), "connection refused")
				require.Contains(t, log.String(), "code="+string(code))
				require.Equal(t, code == problem.Unauthenticated, !strings.Contains(log.String(), "level=WARN"))
			})
		}
	}
}

// The status handler asks the same functions.
func TestCauseOfADeniedLookupIsReported(t *testing.T) {
	t.Parallel()
	var events guardtest.Events
	away := errors.New("policy service is away")
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe),
		idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error {
			return fmt.Errorf("%w: %w", idempotency.ErrTryLater, away)
		}))
	guardtest.ServeRecorder(t, g.Handler(new(guardtest.Counter))).Do(t, guardtest.Call{Key: "k"})
	got := guardtest.ServeRecorder(t, g.LookupHandler()).Do(t, guardtest.Call{Method: http.MethodGet, Key: "k", NoBody: true})
	guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.TryLater)
	require.Len(t, events.Errors(), 1)
	require.ErrorIs(t, events.Errors()[0], away)
}

// A refusal that is the client's doing alone is not in the log.
func TestRefusalWithoutACauseIsNotLogged(t *testing.T) {
	t.Parallel()
	var log guardtest.LockedBuffer
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).Handler(new(guardtest.Counter)))
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "bad,key"}), http.StatusBadRequest, problem.KeyInvalid)
	require.Empty(t, log.String())
}

// A call of an RPC framework may fail behind a 200, and equal messages may differ in their bytes.
func TestCallsOfRPCAreRefused(t *testing.T) {
	t.Parallel()
	own := idempotency.WithFingerprint(func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, body), nil
	})
	for name, header := range map[string]http.Header{
		"gRPC":              {"Content-Type": {"application/grpc"}},
		"gRPC, with a form": {"Content-Type": {"application/grpc+proto"}},
		"gRPC-Web":          {"Content-Type": {"application/grpc-web-text"}},
		"Connect, stream":   {"Content-Type": {"application/connect+json"}},
		"Connect":           {"Content-Type": {"application/proto"}, "Connect-Protocol-Version": {"1"}},

		// As frameworks read the field.
		"gRPC, in another case":    {"Content-Type": {"Application/GRPC"}},
		"gRPC, with a parameter":   {"Content-Type": {"application/grpc ; charset=utf-8"}},
		"gRPC, before another":     {"Content-Type": {"application/grpc", "application/json"}},
		"gRPC, behind another":     {"Content-Type": {"application/json", "application/grpc"}},
		"Connect, in another case": {"Content-Type": {"APPLICATION/Connect+Proto"}},

		"MCP":              {"Mcp-Protocol-Version": {"2025-06-18"}},
		"MCP in a session": {"Mcp-Session-Id": {"s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var events guardtest.Events
			for opt, refused := range map[*idempotency.Option]bool{nil: true, &own: false} {
				opts := []idempotency.Option{idempotency.WithObserver(events.Observe)}
				if opt != nil {
					opts = append(opts, *opt)
				}
				counter := new(guardtest.Counter)
				s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(counter))
				got := s.Do(t, guardtest.Call{Key: "k", Header: header})
				if refused {
					guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.FingerprintFailed)
				}
				require.Equal(t, refused, counter.Runs.Load() == 0)
				s.Do(t, guardtest.Call{Header: header})
				require.Equal(t, refused, counter.Runs.Load() == 1, "a call without a key passes")
			}
			require.Len(t, events.Errors(), 1)
			module := "connectidempotency"
			if strings.HasPrefix(name, "MCP") {
				module = "mcpidempotency"
			}
			require.ErrorContains(t, events.Errors()[0], module)
		})
	}
}
