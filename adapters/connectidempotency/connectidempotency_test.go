package connectidempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/idempotency"
	"example.com/idempotency/adapters/connectidempotency"
	"example.com/idempotency/adapters/connectidempotency/connectclient"
	"example.com/idempotency/internal/frametest"
)

// internal/rpctest sends calls to real servers over all protocols and compares the answers.

func newGuard(t *testing.T, opts ...idempotency.Option) *idempotency.Guard {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	return guard
}

func TestWhatCannotWorkIsRefusedAtStart(t *testing.T) {
	guard := newGuard(t)
	byBody := newGuard(t, idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", nil }))
	require.Panics(t, func() { connectidempotency.NewInterceptor(nil, connectidempotency.SharedScope) })
	require.Panics(t, func() { connectidempotency.NewInterceptor(guard, nil) })
	require.Panics(t, func() { connectidempotency.NewInterceptor(byBody, connectidempotency.SharedScope) })
	require.Panics(t, func() {
		connectidempotency.NewInterceptor(guard, connectidempotency.SharedScope,
			connectidempotency.WithProcedure("/a/b", idempotency.WithTTL(-1)))
	})
}

func TestDefaultOutcome(t *testing.T) {
	require.Equal(t, idempotency.Final, connectidempotency.DefaultOutcome(nil))
	require.Equal(t, idempotency.Final, connectidempotency.DefaultOutcome(connect.NewError(connect.CodeNotFound, nil)))
	require.Equal(t, idempotency.NotExecuted, connectidempotency.DefaultOutcome(connect.NewError(connect.CodeResourceExhausted, nil)))
	require.Equal(t, idempotency.Unknown, connectidempotency.DefaultOutcome(errors.New("boom")))
}

// serve starts a server that counts its runs and tells the keys that it gets.
func serve(t *testing.T, i connect.Interceptor, level connect.IdempotencyLevel, fail int) (url string, keys *[]string) {
	keys = new([]string)
	h := connect.NewUnaryHandler(chargeProcedure, func(_ context.Context, req *connect.Request[wrapperspb.Int64Value]) (*connect.Response[wrapperspb.StringValue], error) {
		*keys = append(*keys, req.Header().Get("Idempotency-Key"))
		if len(*keys) <= fail {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("not now"))
		}
		return connect.NewResponse(wrapperspb.String("ok")), nil
	}, connect.WithInterceptors(i), connect.WithIdempotency(level))
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL + chargeProcedure, keys
}

// pass is an interceptor that does nothing.
var pass = connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc { return next })

func TestProcedureWithoutSideEffectsPasses(t *testing.T) {
	url, keys := serve(t, connectidempotency.NewInterceptor(newGuard(t, idempotency.WithRequired(true)), connectidempotency.SharedScope),
		connect.IdempotencyNoSideEffects, 0)
	c := connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](http.DefaultClient, url,
		connect.WithInterceptors(connectclient.NewInterceptor()), connect.WithIdempotency(connect.IdempotencyNoSideEffects))
	for range 2 {
		res, err := c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.Int64(1)))
		require.NoError(t, err)
		require.Empty(t, res.Header().Get("Idempotent-Replayed"))
	}
	require.Equal(t, []string{"", ""}, *keys, "such a call needs no key")
}

func TestInterceptorOfAServerIsNotOneOfAClient(t *testing.T) {
	url, _ := serve(t, pass, 0, 0)
	c := connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](http.DefaultClient, url,
		connect.WithInterceptors(connectidempotency.NewInterceptor(newGuard(t), connectidempotency.SharedScope)))
	_, err := c.CallUnary(t.Context(), connect.NewRequest(wrapperspb.Int64(1)))
	require.ErrorContains(t, err, "connectclient")
}

// retry tries three times.
func retry(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (res connect.AnyResponse, err error) {
		for range 3 {
			if res, err = next(ctx, req); connect.CodeOf(err) != connect.CodeUnavailable {
				break
			}
		}
		return res, err
	}
}

func TestClientSendsOneKeyWithEachTry(t *testing.T) {
	url, keys := serve(t, pass, 0, 2)
	c := connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](http.DefaultClient, url,
		connect.WithInterceptors(connectclient.NewInterceptor(), connect.UnaryInterceptorFunc(retry)))
	req := connect.NewRequest(wrapperspb.Int64(1))
	_, err := c.CallUnary(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, *keys, 3)
	require.Len(t, (*keys)[0], 36)
	require.Equal(t, (*keys)[0], (*keys)[1])
	require.Equal(t, (*keys)[0], (*keys)[2])

	_, err = c.CallUnary(t.Context(), req)
	require.NoError(t, err)
	require.NotEqual(t, (*keys)[0], (*keys)[3], "another call is another intent, also with the same request")
}

// caller returns what makes a call with the interceptor of clients.
func caller(url string) func(ctx context.Context, field ...string) error {
	c := connect.NewClient[wrapperspb.Int64Value, wrapperspb.StringValue](http.DefaultClient, url,
		connect.WithInterceptors(connectclient.NewInterceptor()))
	return func(ctx context.Context, field ...string) error {
		req := connect.NewRequest(wrapperspb.Int64(1))
		for _, v := range field {
			req.Header().Set("Idempotency-Key", v)
		}
		_, err := c.CallUnary(ctx, req)
		return err
	}
}

func TestClientSendsTheChosenKey(t *testing.T) {
	url, keys := serve(t, pass, 0, 0)
	frametest.ChosenKeys(t, caller(url), func() []string { return *keys })
}

func TestClientTakesTheKeysOfAStep(t *testing.T) {
	url, keys := serve(t, pass, 0, 0)
	frametest.KeysOfAStep(t, caller(url), func() []string { return *keys })
}
