package grpcidempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/idempotency"
	"example.com/idempotency/adapters/grpcidempotency"
	"example.com/idempotency/adapters/grpcidempotency/grpcclient"
	"example.com/idempotency/client"
	"example.com/idempotency/internal/frametest"
)

// internal/rpctest sends calls to real servers and compares the answers.

func newGuard(t *testing.T, opts ...idempotency.Option) *idempotency.Guard {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)))...)
	require.NoError(t, err)
	return guard
}

func TestWhatCannotWorkIsRefusedAtStart(t *testing.T) {
	guard := newGuard(t)
	byBody := newGuard(t, idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", nil }))
	require.Panics(t, func() { grpcidempotency.NewInterceptors(nil, grpcidempotency.SharedScope) })
	require.Panics(t, func() { grpcidempotency.NewInterceptors(guard, nil) })
	require.Panics(t, func() { grpcidempotency.NewInterceptors(byBody, grpcidempotency.SharedScope) })
}

func TestDefaultOutcome(t *testing.T) {
	require.Equal(t, idempotency.Final, grpcidempotency.DefaultOutcome(nil))
	require.Equal(t, idempotency.Final, grpcidempotency.DefaultOutcome(status.Error(codes.NotFound, "")))
	require.Equal(t, idempotency.NotExecuted, grpcidempotency.DefaultOutcome(status.Error(codes.ResourceExhausted, "")))
	require.Equal(t, idempotency.Unknown, grpcidempotency.DefaultOutcome(errors.New("boom")))
}

// What is called without a server, in tests for example, works too.
func TestCallWithoutAServer(t *testing.T) {
	unary, _ := grpcidempotency.NewInterceptors(newGuard(t), grpcidempotency.SharedScope)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "key"))
	runs := 0
	for range 2 {
		got, err := unary(ctx, wrapperspb.Int64(1), &grpc.UnaryServerInfo{FullMethod: charge}, func(context.Context, any) (any, error) {
			runs++
			return wrapperspb.String("done"), nil
		})
		require.NoError(t, err)
		require.Equal(t, "done", got.(*wrapperspb.StringValue).Value)
	}
	require.Equal(t, 1, runs)

	_, err := unary(ctx, "not a message", &grpc.UnaryServerInfo{FullMethod: charge}, nil)
	require.Equal(t, codes.Internal, status.Code(err))
}

// A procedure with a name that is longer than the label of a route works like any other.
func TestLongProcedure(t *testing.T) {
	unary, _ := grpcidempotency.NewInterceptors(newGuard(t), grpcidempotency.SharedScope)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "key"))
	_, err := unary(ctx, wrapperspb.Int64(1), &grpc.UnaryServerInfo{FullMethod: "/" + strings.Repeat("long.", 40) + "Service/Method"},
		func(context.Context, any) (any, error) { return wrapperspb.String("done"), nil })
	require.NoError(t, err)
}

// A server counts the keys that it gets, and fails the first calls.
type server struct {
	mu   sync.Mutex
	keys []string
	fail int
}

// dial starts the server and returns a connection with the interceptor of clients.
func (s *server) dial(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	g := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keys = append(s.keys, strings.Join(metadata.ValueFromIncomingContext(ctx, "idempotency-key"), "+"))
		if len(s.keys) <= s.fail {
			return nil, status.Error(codes.Unavailable, "not now")
		}
		return next(ctx, req)
	}))
	g.RegisterService(shop(func(context.Context, *wrapperspb.Int64Value) (*wrapperspb.StringValue, error) {
		return wrapperspb.String("ok"), nil
	}), nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(grpcclient.Unary))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A refusal leaves a call to the retry policy of its client, as an error of the handler does.
func TestPolicyOfAClientRepeatsWhatIsRefused(t *testing.T) {
	unary, _ := grpcidempotency.NewInterceptors(newGuard(t), grpcidempotency.SharedScope)
	started, free := make(chan struct{}), make(chan struct{})
	var tries, runs atomic.Int64
	g := grpc.NewServer(grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if tries.Add(1) == 3 { // the first of the run, and the second of the duplicate
			close(free)
		}
		return next(ctx, req)
	}, unary))
	g.RegisterService(shop(func(context.Context, *wrapperspb.Int64Value) (*wrapperspb.StringValue, error) {
		runs.Add(1)
		close(started)
		<-free
		return wrapperspb.String("ok"), nil
	}), nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(grpcclient.Unary),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["ABORTED"]}}]}`))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx := client.WithKey(t.Context(), "key")
	first := make(chan error, 1)
	go func() { first <- call(ctx, conn) }()
	<-started
	require.NoError(t, call(ctx, conn))
	require.NoError(t, <-first)
	require.EqualValues(t, 1, runs.Load())
}

func call(ctx context.Context, conn *grpc.ClientConn) error {
	return conn.Invoke(ctx, charge, wrapperspb.Int64(1), new(wrapperspb.StringValue))
}

// The retry policy of gRPC sends one key with each try.
func TestClientSendsOneKeyWithEachTry(t *testing.T) {
	s := &server{fail: 2}
	conn := s.dial(t, grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`))
	require.NoError(t, call(t.Context(), conn))
	require.Len(t, s.keys, 3)
	require.Len(t, s.keys[0], 36)
	require.Equal(t, []string{s.keys[0], s.keys[0], s.keys[0]}, s.keys)
	require.NoError(t, call(t.Context(), conn))
	require.NotEqual(t, s.keys[0], s.keys[3], "another call is another intent")
}

// caller returns what makes calls over the connection, with a field of its own if it gets one.
func caller(conn *grpc.ClientConn) func(ctx context.Context, field ...string) error {
	return func(ctx context.Context, field ...string) error {
		for _, v := range field {
			ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", v)
		}
		return call(ctx, conn)
	}
}

func TestClientSendsTheChosenKey(t *testing.T) {
	s := &server{}
	conn := s.dial(t)
	frametest.ChosenKeys(t, caller(conn), func() []string { return s.keys })
	require.Equal(t, codes.FailedPrecondition, status.Code(call(client.WithKey(t.Context(), "a,b"), conn)))
}

func TestClientTakesTheKeysOfAStep(t *testing.T) {
	s := &server{}
	frametest.KeysOfAStep(t, caller(s.dial(t)), func() []string { return s.keys })
}
