package wiretest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client/profile"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A guard in front of httputil.ReverseProxy, behind it, and inside http.TimeoutHandler.

// quiet keeps expected panics and proxy errors out of the test's output.
var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// upstream answers with everything that makes a proxy reach for the connection: a header
// before the body, flushed chunks, one trailer that is announced and one that is not.
func upstream(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Checksum")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	w.(http.Flusher).Flush()
	_, _ = w.Write(body)
	w.(http.Flusher).Flush()
	_, _ = w.Write(body)
	w.Header().Set("X-Checksum", "12345")
	w.Header().Set(http.TrailerPrefix+"X-Unannounced", "1")
}

func proxyTo(t *testing.T, h http.Handler) *httputil.ReverseProxy {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = quiet
	s.Start()
	t.Cleanup(s.Close)
	return proxyToServer(t, &guardtest.Server{URL: s.URL, Client: s.Client()})
}

func proxyToServer(t *testing.T, s *guardtest.Server) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(s.URL)
	require.NoError(t, err)
	return &httputil.ReverseProxy{
		Transport:     s.Client.Transport,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		ErrorLog:      quiet,
	}
}

func TestReverseProxyRunsOnce(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) { upstream(w, r) }}
		proxy := proxyTo(t, hits)
		bare := serve(proxy).Do(t, guardtest.Call{Key: "bare"})
		require.Equal(t, guardtest.DefaultBody+guardtest.DefaultBody, bare.Body)
		require.Equal(t, http.Header{"X-Checksum": {"12345"}, "X-Unannounced": {"1"}}, bare.Trailer)

		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxy))
		first := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
		require.Equal(t, bare.Status, first.Status)
		require.Equal(t, bare.Body, first.Body)
		require.Equal(t, bare.Trailer, first.Trailer)
		first.Header.Del("Idempotency-Key")
		guardtest.RequireSameHeader(t, bare.Header, first.Header)
		require.EqualValues(t, 2, hits.Runs.Load())
	})
}

// A gateway and the service behind it are both guarded. Both echo the key, and an
// informational answer makes the proxy forget the header it was given.
func TestReverseProxyToAGuardedService(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.URL.Path == "/hints" {
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.WriteString(w, "charged")
		}}
		proxy := proxyTo(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(hits))
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxy))
		for _, path := range []string{"/plain", "/hints"} {
			first, again := s.Do(t, guardtest.Call{Key: path, Path: path}), s.Do(t, guardtest.Call{Key: path, Path: path})
			guardtest.RequireReplay(t, first, again)
			for _, got := range []guardtest.Reply{first, again} {
				require.Equal(t, []string{path}, got.Header.Values("Idempotency-Key"))
			}
		}
		require.EqualValues(t, 2, hits.Runs.Load())
	})
}

func TestReverseProxyOutlivesItsClient(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		gone := make(chan struct{})
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, "one ")
			w.(http.Flusher).Flush()
			<-gone
			_, _ = io.WriteString(w, "two")
		}}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(proxyTo(t, hits))
		s := serve(guardtest.Noticing(gone, guarded))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := s.Client.Do(s.Request(ctx, guardtest.Call{Key: "k"}))
		require.NoError(t, err)
		cancel()
		resp.Body.Close()
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, "one two", got.Body)
		require.EqualValues(t, 1, hits.Runs.Load())
	})
}

// An upstream that dies in the middle makes the proxy panic with http.ErrAbortHandler. Half
// an answer is not an answer.
func TestReverseProxyThatIsCutShortIsUnknown(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			_, _ = io.WriteString(w, "half")
			if run == 1 {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxyTo(t, hits)))
		_, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
		require.Error(t, err)
		second := s.Do(t, guardtest.Call{Key: "k"})
		require.False(t, second.Replayed())
		guardtest.RequireReplay(t, second, s.Do(t, guardtest.Call{Key: "k"}))
		require.EqualValues(t, 2, hits.Runs.Load())
	})
}

// With a guard inside http.TimeoutHandler the client gets 503 in time, the run goes on, and
// the retry gets its answer.
func TestTimeoutHandlerOutside(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		leave := make(chan struct{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			<-r.Context().Done() // the deadline of the request is kept
			<-leave
			_, _ = io.WriteString(w, "charged")
		}}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h)
		hurried := http.TimeoutHandler(guarded, time.Millisecond, "")
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Hurry") != "" {
				hurried.ServeHTTP(w, r)
				return
			}
			guarded.ServeHTTP(w, r)
		}))
		key, got := s.Overrun(t, h, guardtest.Call{Header: http.Header{"X-Hurry": {"1"}}})
		require.Equal(t, http.StatusServiceUnavailable, got.Status)
		close(leave)
		got = s.Do(t, guardtest.Call{Key: key})
		require.True(t, got.Replayed())
		require.Equal(t, "charged", got.Body)
		require.EqualValues(t, 1, h.RunsOf(key))
	})
}

// A gateway with a guard in front of a service with a guard. The two have stores of their
// own, and the same key.

// The client takes a refusal of the service for one of the gateway. Whatever the service says,
// what the client concludes is true of the gateway too: of its key, and of what it has done.
func TestRefusalOfTheServiceIsTrueOfTheGateway(t *testing.T) {
	guard := profile.Guard()
	for _, code := range problem.Codes() {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			for _, effect := range []bool{false, true} {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					if effect {
						_, err := idempotency.Step(r.Context(), "reserve", func(context.Context) (int, error) { return 1, nil })
						if err != nil {
							t.Error(err)
						}
					}
					w.Header().Set(problem.Header, string(code))
					w.WriteHeader(problem.New(code).Status)
				}}
				gateway := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(recovery)).Handler(h))
				got := gateway.Do(t, guardtest.Call{Key: "k"})
				means := guard.Meaning(&http.Response{StatusCode: got.Status, Header: got.Header}, nil)
				what := fmt.Sprintf("%s under %v, effect %v: the client gets %s", code, recovery, effect, got.Header.Get(problem.Header))

				again := gateway.Do(t, guardtest.Call{Key: "k"})
				held := h.Runs.Load() == 1
				if held {
					guardtest.RequireProblem(t, again, http.StatusConflict, problem.OutcomeUnknown)
					require.Contains(t, []profile.Meaning{profile.Held, profile.Lost}, means, "the key is held: %s", what)
					continue
				}
				if effect {
					require.NotContains(t, []profile.Meaning{profile.NotRun, profile.Refused, profile.Reused}, means, what)
					continue
				}
				require.Equal(t, string(code), got.Header.Get(problem.Header), "there is nothing to correct: %s", what)
			}
		}
	}
}

// While the service is still at work for somebody else, the gateway has no answer to record.
func TestGatewayDoesNotRecordThatTheServiceIsBusy(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		begun, finish := make(chan struct{}), make(chan struct{})
		charges := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			close(begun)
			<-finish
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "charged")
		}}
		service := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(charges))
		proxy := proxyToServer(t, service)
		gateway := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxy))

		call := guardtest.Call{Key: "k"}
		done := make(chan guardtest.Reply, 1)
		go func() { done <- service.Attempt(t, call) }()
		<-begun
		guardtest.RequireProblem(t, gateway.Do(t, call), http.StatusConflict, problem.InFlight)
		close(finish)
		require.Equal(t, http.StatusCreated, (<-done).Status)

		got := gateway.Do(t, call)
		require.Equal(t, http.StatusCreated, got.Status, got.Body)
		require.Equal(t, "charged", got.Body)
		require.True(t, gateway.Do(t, call).Replayed())
		require.EqualValues(t, 1, charges.Runs.Load())
	})
}

// What the service says of its own key, which the gateway has derived, and of how long that is good, is
// not true of the key of the gateway's client. On the first answer, on a replay, on a stream and in a run
// without a claim, each field is there as without the service.
func TestFieldsOfTheServiceAreNotThoseOfTheGateway(t *testing.T) {
	charges := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("X-Charge", "1")
		if r.URL.Path == "/streamed" {
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "charged")
	}
	expiry := idempotency.WithExpiryHeader(guardtest.ExpiryHeader)
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		own := []idempotency.Option{expiry, idempotency.WithTTL(10 * time.Hour)}
		unkeyed := idempotency.WithKeyFunc(func(r *http.Request, _ []byte) (string, error) { return r.URL.Path, nil })
		away := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
		away.On("claim", guardtest.Always(guardtest.Refuse))
		for name, tt := range map[string]struct {
			store     idempotency.Store
			more      idempotency.Option
			protected bool
		}{
			"as usual":           {idempotency.NewMemoryStore(), nil, true},
			"key not in a field": {idempotency.NewMemoryStore(), unkeyed, true},
			"without a claim":    {away, idempotency.WithFailOpen(true), false},
		} {
			service := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), expiry, idempotency.WithTTL(time.Hour)).Handler(http.HandlerFunc(charges)))
			proxy := proxyToServer(t, service)
			proxy.FlushInterval = 0 // of answers of declared length
			rewrite := proxy.Rewrite
			proxy.Rewrite = func(r *httputil.ProxyRequest) {
				rewrite(r)
				r.Out.Header.Set("Idempotency-Key", idempotency.DeriveKey(r.In.Context(), "charge"))
			}
			gateway := serve(guardtest.NewGuard(t, tt.store, append(own, tt.more)...).Handler(proxy))
			for _, path := range []string{"/plain", "/streamed", "/hints"} {
				c := guardtest.Call{Key: "k" + path, Path: path}
				echo, lives := []string{c.Key}, []string{"36000"}
				if name == "key not in a field" {
					c.Key, echo = "", nil
				}
				first, again := gateway.Do(t, c), gateway.Do(t, c)
				require.Equal(t, "charged", first.Body, name)
				require.Equal(t, first.Body, again.Body, name)
				for _, got := range []guardtest.Reply{first, again} {
					require.Equal(t, echo, got.Header["Idempotency-Key"], "%s %s", name, path)
					require.Equal(t, "1", got.Header.Get("X-Charge"))
				}
				if !tt.protected {
					lives = nil
				} else if life := again.Header.Get("Idempotency-Ttl"); life != "36000" {
					require.Equal(t, "35999", life, "a second may have passed")
				}
				if path == "/streamed" {
					lives = nil // it was not recorded before it was sent
				}
				require.Equal(t, lives, first.Header["Idempotency-Ttl"], "%s %s", name, path)
				require.LessOrEqual(t, len(again.Header["Idempotency-Ttl"]), 1)
			}
		}
	})
}

// A service may announce as many trailers as the header of an answer has room for. A guard in front of the proxy to it
// adds no time that grows with their square, to the first answer or to a replay: with such a loop, each took seconds.
func TestReverseProxyToAServiceThatAnnouncesThousandsOfTrailers(t *testing.T) {
	const n = 8_000
	proxy := proxyTo(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range n {
			w.Header().Add("Trailer", fmt.Sprint("X-", i))
		}
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-0", "1") // a client of HTTP/1.1 reads 4 KiB of them
	}))
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	took := func(h http.Handler, key string) time.Duration {
		start := time.Now()
		got := guardtest.ServeHTTP1(t, h).Do(t, guardtest.Call{Key: key})
		require.Equal(t, http.StatusCreated, got.Status)
		require.Equal(t, "1", got.Trailer.Get("X-0"))
		return time.Since(start)
	}
	bare := took(proxy, "")
	first := took(guard.Handler(proxy), "k")
	t.Log(bare, first)
	require.Less(t, first, 20*bare+2*time.Second)
}
