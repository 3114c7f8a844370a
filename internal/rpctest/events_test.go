package rpctest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/idempotency"
	"example.com/idempotency/adapters/connectidempotency"
	"example.com/idempotency/adapters/grpcidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// What a guard of calls reports, and which of its options count.

// An eventLog has the events of a guard.
type eventLog struct {
	mu  sync.Mutex
	all []event.Event
}

func (l *eventLog) observe(_ context.Context, e event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

// last returns the newest event, of so many.
func (l *eventLog) last(t *testing.T, count int) event.Event {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Len(t, l.all, count)
	return l.all[count-1]
}

// await waits for an event that is reported in the background.
func (l *eventLog) await(t *testing.T, count int) event.Event {
	t.Helper()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.all) >= count
	}, 10*time.Second, time.Millisecond)
	return l.last(t, count)
}

// Each call that gets no further than the interceptor is reported, and beside a shadow too, where it
// is not refused.
func TestWhatTheInterceptorDecidesIsReported(t *testing.T) {
	secret := errors.New("directory is down")
	withScope := func(tenant string) call {
		c := keyed("key", "plain")
		c.md["tenant"] = []string{tenant}
		return c
	}
	streamed := keyed("key", "plain")
	streamed.method = "Watch"
	calls := []struct {
		call call
		code problem.Code
		err  error
	}{
		{keyed("a,b", "plain"), problem.KeyInvalid, nil},
		{call{md: map[string][]string{"tenant": {"acme"}}, req: keyed("", "plain").req}, problem.KeyMissing, nil},
		{withScope(""), problem.ScopeUnresolved, secret},
		{streamed, "stream-unprotected", nil},
	}
	for _, shadow := range []bool{false, true} {
		onEachTransport(t, func(t *testing.T, tr transport) {
			var events eventLog
			opts := []idempotency.Option{
				idempotency.WithObserver(events.observe), idempotency.WithRequired(true), idempotency.WithShadow(shadow),
			}
			scope := func(ctx context.Context) (string, error) {
				if tenant, _ := tenantOf(ctx); tenant != "" {
					return tenant, nil
				}
				return "", secret
			}
			c := tr.serve(t, newBank(), newGuard(t, idempotency.NewMemoryStore(), opts...), settings{scope: scope})
			for i, test := range calls {
				got := c(t.Context(), test.call)
				require.Equal(t, shadow, got.Code == ok, "%+v", got)
				e := events.last(t, i+1)
				kind, would := event.Refused, event.Kind("")
				if shadow {
					kind, would = event.Shadow, event.Refused
				}
				require.Equal(t, kind, e.Kind)
				require.Equal(t, would, e.Would)
				require.Equal(t, test.code, e.Code)
				require.ErrorIs(t, e.Err, test.err)
				require.Contains(t, e.Route, "/bank.v1.Bank/")
			}
		})
	}
}

// A call without a key is reported, as a request is.
func TestCallWithoutAKeyIsReported(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		onEachTransport(t, func(t *testing.T, tr transport) {
			var events eventLog
			guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.observe), idempotency.WithShadow(shadow))
			c := tr.serve(t, newBank(), guard, settings{})
			bare := keyed("", "plain")
			delete(bare.md, "idempotency-key")
			require.Zero(t, c(t.Context(), bare).Code)
			e := events.last(t, 1)
			if shadow {
				require.Equal(t, event.Shadow, e.Kind)
				e.Kind = e.Would
			}
			require.Equal(t, event.Bypassed, e.Kind)
		})
	}
}

// A shadow judges an answer by its code.
func TestShadowJudgesByCode(t *testing.T) {
	onEachTransport(t, func(t *testing.T, tr transport) {
		var events eventLog
		guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.observe), idempotency.WithShadow(true))
		c := tr.serve(t, newBank(), guard, settings{})
		n := 0
		for name, again := range map[string]event.Kind{
			"plain": event.Replay, "code 5": event.Replay,
			"code 8": event.Run, "code 14": event.Run,
		} {
			for _, want := range []event.Kind{event.Run, again} {
				c(t.Context(), keyed(name[len(name)-1:], name))
				n++
				require.Equal(t, want, events.await(t, n).Would, name)
			}
		}
	})
}

// Options that could not be kept for a call are refused at start. The error names them, and what to
// do.
func TestOptionsThatNeedHTTPAreRefusedAtStart(t *testing.T) {
	for name, option := range map[string]idempotency.Option{
		"WithKeyFunc":         idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", nil }),
		"WithReference":       idempotency.WithReference(func(*http.Request, []byte) string { return "" }),
		"WithAuthorizeReplay": idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error { return nil }),
		"WithExpiryHeader":    idempotency.WithExpiryHeader("Idempotency-TTL"),
	} {
		guard := newGuard(t, idempotency.NewMemoryStore())
		for _, start := range []func(){
			func() { connectidempotency.NewInterceptor(guard.With(option), connectidempotency.SharedScope) },
			func() { grpcidempotency.NewInterceptors(guard.With(option), grpcidempotency.SharedScope) },
			func() {
				connectidempotency.NewInterceptor(guard, connectidempotency.SharedScope, connectidempotency.WithProcedure("/p", option))
			},
			func() {
				grpcidempotency.NewInterceptors(guard, grpcidempotency.SharedScope, grpcidempotency.WithProcedure("/p", option))
			},
		} {
			func() {
				defer func() {
					text, _ := recover().(string)
					require.Regexp(t, "NewInterceptors?: the guard has "+name, text)
					require.Contains(t, text, "guard.With")
				}()
				start()
			}()
		}
	}
}

// A field that is not to be recorded is in the first answer, and in no replay.
func TestUnrecordedFields(t *testing.T) {
	onEachTransport(t, func(t *testing.T, tr transport) {
		for _, name := range []string{"header and trailer", "code 5"} {
			b := newBank()
			c := tr.serve(t, b, newGuard(t, idempotency.NewMemoryStore()), settings{})
			all := c(t.Context(), keyed("key", name))
			kept := c(t.Context(), keyed("key", name))
			require.True(t, kept.Replayed)
			fieldsOf := func(a answer) (names []string) {
				for _, h := range []map[string][]string{a.Header, a.Trailer} {
					for name := range h {
						names = append(names, http.CanonicalHeaderKey(name))
					}
				}
				return names
			}
			own := fieldsOf(kept)
			require.NotEmpty(t, own, "%+v", all)
			guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithUnrecorded(own...))
			c = tr.serve(t, newBank(), guard, settings{})
			require.ElementsMatch(t, fieldsOf(all), fieldsOf(c(t.Context(), keyed("key", name))))
			bare := c(t.Context(), keyed("key", name))
			require.True(t, bare.Replayed)
			require.Empty(t, fieldsOf(bare))
		}
	})
}

// With WithClientCancel, the run of a client that hangs up is told to stop.
func TestClientCancels(t *testing.T) {
	onEach(t, settings{}, []idempotency.Option{idempotency.WithClientCancel(true)}, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan answer)
		go func() { done <- c(ctx, keyed("key", "slow")) }()
		<-b.entered
		cancel()
		require.EqualValues(t, canceled, (<-done).Code)
		go func() {
			got := c(t.Context(), keyed("key", "slow"))
			for got.Code == aborted { // until the first run has ended, which nobody has released
				got = c(t.Context(), keyed("key", "slow"))
			}
			done <- got
		}()
		<-b.entered
		close(b.release)
		require.Zero(t, (<-done).Code)
		require.Equal(t, 2, b.ran("slow"))
	})
}

// Two interceptors of one guard are one, and the inner one says so.
func TestNestedInterceptor(t *testing.T) {
	var events eventLog
	guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.observe))
	kinds := func() (all []event.Kind) {
		events.mu.Lock()
		defer events.mu.Unlock()
		for _, e := range events.all {
			all = append(all, e.Kind)
		}
		events.all = nil
		return all
	}
	want := []event.Kind{event.Nested, event.Run, event.Replay}

	i := connectidempotency.NewInterceptor(guard, connectidempotency.SharedScope)
	unary := i.WrapUnary(i.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
		return connect.NewResponse(keyed("", "plain").req), nil
	}))
	for range 2 {
		req := connect.NewRequest(keyed("", "plain").req)
		req.Header().Set("Idempotency-Key", "connect")
		_, err := unary(t.Context(), req)
		require.NoError(t, err)
	}
	require.Equal(t, want, kinds())

	g, _ := grpcidempotency.NewInterceptors(guard, grpcidempotency.SharedScope)
	info := &grpc.UnaryServerInfo{FullMethod: "/bank.v1.Bank/Pay"}
	for range 2 {
		_, err := g(incoming(t.Context(), "grpc"), keyed("", "plain").req, info, func(ctx context.Context, req any) (any, error) {
			return g(ctx, req, info, func(context.Context, any) (any, error) { return req, nil })
		})
		require.NoError(t, err)
	}
	require.Equal(t, want, kinds())
}

// An error with the code OK is a mistake of the program. Its run may have done anything.
func TestErrorThatIsOK(t *testing.T) {
	require.Equal(t, idempotency.Unknown, connectidempotency.DefaultOutcome(connect.NewError(0, errors.New("mistake"))))
	require.Equal(t, idempotency.Unknown, grpcidempotency.DefaultOutcome(okError{}))
}

// An okError is what a program makes of a status that it did not look at.
type okError struct{}

func (okError) Error() string { return "mistake" }

func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

func incoming(ctx context.Context, key string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("idempotency-key", key))
}

// A shadow leaves the stream of grpc in place, which some functions of grpc need.
func TestShadowLeavesTheStreamInPlace(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		unary, _ := grpcidempotency.NewInterceptors(newGuard(t, idempotency.NewMemoryStore(), idempotency.WithShadow(shadow)), grpcidempotency.SharedScope)
		stream := &serverStream{}
		ctx := grpc.NewContextWithServerTransportStream(incoming(t.Context(), "key"), stream)
		info := &grpc.UnaryServerInfo{FullMethod: "/bank.v1.Bank/Pay"}
		_, err := unary(ctx, keyed("", "plain").req, info, func(ctx context.Context, req any) (any, error) {
			require.Equal(t, shadow, grpc.ServerTransportStreamFromContext(ctx) == grpc.ServerTransportStream(stream))
			return req, nil
		})
		require.NoError(t, err)
	}
}

type serverStream struct{ grpc.ServerTransportStream }

func (*serverStream) SetHeader(metadata.MD) error  { return nil }
func (*serverStream) SetTrailer(metadata.MD) error { return nil }

// A client can make up the names of procedures that a server does not have. They leave nothing behind: no
// label of a metric for a stream, and few for calls.
func TestProceduresThatAreMadeUp(t *testing.T) {
	var events eventLog
	guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.observe))
	_, stream := grpcidempotency.NewInterceptors(guard, grpcidempotency.SharedScope)
	proxy := func(ctx context.Context, made string) error {
		return stream(nil, &anyStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: made}, func(any, grpc.ServerStream) error { return nil })
	}
	require.Equal(t, codes.Unimplemented, status.Code(proxy(incoming(t.Context(), "key"), "/made.up/\x01Name")))
	require.Empty(t, events.last(t, 1).Route)
	require.NoError(t, proxy(t.Context(), "/made.up/Name"))

	unary, _ := grpcidempotency.NewInterceptors(guard, grpcidempotency.SharedScope)
	run := func(ctx context.Context, made string) {
		_, err := unary(ctx, keyed("", "plain").req, &grpc.UnaryServerInfo{FullMethod: made}, func(_ context.Context, req any) (any, error) { return req, nil })
		require.NoError(t, err)
	}
	routes := map[string]bool{}
	for i := range 1100 {
		run(incoming(t.Context(), fmt.Sprint(i)), fmt.Sprint("/made.up/", i))
		routes[events.last(t, 2+i).Route] = true
	}
	require.Len(t, routes, 1024+1)
	require.True(t, routes[""])
}

// An anyStream is a stream with a context.
type anyStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *anyStream) Context() context.Context { return s.ctx }
