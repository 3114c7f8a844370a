package wiretest

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// The tests of this file show what each kind of middleware does outside of a guard and,
// where that is not obvious, what goes wrong inside.

// gzipped compresses answers for clients that accept it.
func gzipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		zip := &gzipWriter{ResponseWriter: w, zip: gzip.NewWriter(w)}
		next.ServeHTTP(zip, r)
		_ = zip.zip.Close()
	})
}

type gzipWriter struct {
	http.ResponseWriter
	zip *gzip.Writer
}

func (w *gzipWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Encoding", "gzip")
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(p []byte) (int, error) { return w.zip.Write(p) }

// Each client gets the encoding that it asked for, whichever client came first.
func TestCompressionOutside(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "charged")
		}}
		s := serve(gzipped(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		for _, key := range []string{"gzip first", "identity first"} {
			for i := range 4 {
				encoding := "identity"
				if (i%2 == 0) == strings.HasPrefix(key, "gzip") {
					encoding = "gzip"
				}
				got := s.Do(t, guardtest.Call{Header: http.Header{"Idempotency-Key": {`"` + key + `"`}, "Accept-Encoding": {encoding}}})
				require.Equal(t, http.StatusCreated, got.Status)
				require.Equal(t, i > 0, got.Replayed())
				require.Equal(t, "Accept-Encoding", got.Header.Get("Vary"))
				body := got.Body
				if encoding == "gzip" {
					require.Equal(t, "gzip", got.Header.Get("Content-Encoding"))
					zip, err := gzip.NewReader(strings.NewReader(body))
					require.NoError(t, err)
					plain, err := io.ReadAll(zip)
					require.NoError(t, err)
					body = string(plain)
				} else {
					require.Empty(t, got.Header.Get("Content-Encoding"))
				}
				require.Equal(t, "charged", body)
			}
		}
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// The wrong way: the compressed bytes are the answer that is recorded.
func TestCompressionInsideIsReplayedToAll(t *testing.T) {
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(gzipped(&guardtest.Counter{})))
	first := s.Do(t, guardtest.Call{Key: "k", Header: http.Header{"Accept-Encoding": {"gzip"}}})
	again := s.Do(t, guardtest.Call{Key: "k", Header: http.Header{"Accept-Encoding": {"identity"}}})
	require.Equal(t, "gzip", again.Header.Get("Content-Encoding"))
	require.Equal(t, first.Body, again.Body)
}

// The wrong way: the 503 of a timeout inside says that the run has ended, although the
// handler goes on, so that the next request runs beside it.
func TestTimeoutHandlerInsideRunsBesideItself(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		running, leave := make(chan struct{}, 2), make(chan struct{})
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			running <- struct{}{}
			<-leave
		})
		defer close(leave)
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.TimeoutHandler(slow, 1, "")))
		for range 2 {
			require.Equal(t, http.StatusServiceUnavailable, s.Do(t, guardtest.Call{Key: "k"}).Status)
			<-running
		}
	})
}

// A preflight request reaches the handler that answers it, with a key demanded and without
// a scope: browsers send neither.
func TestPreflightPassesUntouched(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		store := idempotency.NewMemoryStore()
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Access-Control-Allow-Headers", "Idempotency-Key")
			w.WriteHeader(http.StatusNoContent)
		}}
		s := serve(guardtest.NewGuard(t, store, idempotency.WithRequired(true)).Handler(h))
		preflight := guardtest.Call{Method: http.MethodOptions, Tenant: "unknown", NoBody: true, Header: http.Header{
			"Origin": {"https://app.test"}, "Access-Control-Request-Method": {"POST"},
			"Access-Control-Request-Headers": {"idempotency-key"},
		}}
		for range 2 {
			got := s.Do(t, preflight)
			require.Equal(t, http.StatusNoContent, got.Status)
			require.Equal(t, "Idempotency-Key", got.Header.Get("Access-Control-Allow-Headers"))
			require.False(t, got.Replayed())
		}
		require.EqualValues(t, 2, h.Runs.Load())
		require.Zero(t, store.Len())
	})
}

// The authorization in front of the guard covers replays too: a client who is not let in
// gets none.
func TestChecksOutsideRunBeforeReplays(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)
		signedIn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer alice" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			guarded.ServeHTTP(w, r)
		})
		s := serve(http.NewCrossOriginProtection().Handler(signedIn))
		from := func(site, authorization string) guardtest.Reply {
			return s.Do(t, guardtest.Call{Key: "k", Header: http.Header{"Sec-Fetch-Site": {site}, "Authorization": {authorization}}})
		}
		require.Equal(t, http.StatusCreated, from("same-origin", "Bearer alice").Status)
		require.Equal(t, http.StatusUnauthorized, from("same-origin", "Bearer revoked").Status)
		require.Equal(t, http.StatusForbidden, from("cross-site", "Bearer alice").Status)
		require.True(t, from("same-origin", "Bearer alice").Replayed())
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// overriding takes the method from a header field, as some frameworks do.
func overriding(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if method := r.Header.Get("X-HTTP-Method-Override"); method != "" {
			r.Method = method
		}
		next.ServeHTTP(w, r)
	})
}

// Outside of the guard, the effective method becomes part of the fingerprint. Inside it
// does not.
func TestMethodOverrideBelongsOutside(t *testing.T) {
	method := func(name string) guardtest.Call {
		return guardtest.Call{Key: "k", Header: http.Header{"X-Http-Method-Override": {name}}}
	}
	outside := guardtest.ServeRecorder(t, overriding(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(&guardtest.Counter{})))
	require.Equal(t, http.StatusCreated, outside.Do(t, method("PATCH")).Status)
	guardtest.RequireProblem(t, outside.Do(t, method("POST")), http.StatusConflict, problem.KeyReused)
	require.True(t, outside.Do(t, method("PATCH")).Replayed())

	inside := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(overriding(&guardtest.Counter{})))
	inside.Do(t, method("PATCH"))
	require.True(t, inside.Do(t, method("DELETE")).Replayed(), "the wrong way")
}

// Two services behind one router have their own records, although both see the same path.
func TestStrippedPrefixCounts(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore())
		mux := http.NewServeMux()
		services := map[string]*guardtest.Counter{"/billing": {}, "/shipping": {}}
		for prefix, service := range services {
			mux.Handle(prefix+"/", http.StripPrefix(prefix, guard.Handler(service)))
		}
		s := serve(mux)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k", Path: "/billing/orders/1"}).Status)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k", Path: "/shipping/orders/1"}),
			http.StatusConflict, problem.KeyReused)
		require.True(t, s.Do(t, guardtest.Call{Key: "k", Path: "/billing/orders/1"}).Replayed())
		require.EqualValues(t, 1, services["/billing"].Runs.Load())
		require.Zero(t, services["/shipping"].Runs.Load())
	})
}

// A guard outside of http.StripPrefix binds a key to what one inside of it does, so that it may be moved.
func TestGuardMayMoveThroughAStrippedPrefix(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guard, service := guardtest.NewGuard(t, idempotency.NewMemoryStore()), &guardtest.Counter{}
		call := guardtest.Call{Key: "k", Path: "/billing/orders/a%2Fb?a=1"}
		inside := serve(http.StripPrefix("/billing", guard.Handler(service)))
		require.Equal(t, http.StatusCreated, inside.Do(t, call).Status)
		outside := serve(guard.Handler(http.StripPrefix("/billing", service)))
		require.True(t, outside.Do(t, call).Replayed())
		require.EqualValues(t, 1, service.Runs.Load())
	})
}

// The parts of a batch are requests that were made in the process, each with the RequestURI of the
// batch. A part with the key of another one is refused, and not answered by the other's answer.
func TestPartsOfABatchAreRequestsOfTheirOwn(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, r.URL.Path)
		}}
		parts := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			part := r.Clone(r.Context())
			part.URL.Path = r.Header.Get("Part")
			parts.ServeHTTP(w, part)
		}))
		part := func(path string) guardtest.Call {
			return guardtest.Call{Key: "k", Path: "/batch", Header: http.Header{"Part": {path}}}
		}
		require.Equal(t, "/charges/1", s.Do(t, part("/charges/1")).Body)
		guardtest.RequireProblem(t, s.Do(t, part("/charges/2")), http.StatusConflict, problem.KeyReused)
		again := s.Do(t, part("/charges/1"))
		require.True(t, again.Replayed())
		require.Equal(t, "/charges/1", again.Body)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// zipWriter compresses as many programs do: it announces the coding before the handler runs
// and leaves status and header to the handler.
type zipWriter struct {
	http.ResponseWriter
	zip io.Writer
}

func (w zipWriter) Write(p []byte) (int, error) { return w.zip.Write(p) }

func zipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		next.ServeHTTP(zipWriter{w, zip}, r)
		_ = zip.Close()
	})
}

// The guard knows the length before compression.
func TestCompressionThatIsAnnouncedFirst(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
		mux := http.NewServeMux()
		page := "<html>" + strings.Repeat("charged ", 1000)
		mux.Handle("POST /", g.Handler(guardtest.Answering(0, page)))
		mux.Handle("GET /", g.LookupHandler())
		s := serve(zipped(mux))
		for _, tt := range []struct {
			call guardtest.Call
			mime string
			text string
		}{
			{guardtest.Call{}, "text/html; charset=utf-8", page},
			{guardtest.Call{}, "text/html; charset=utf-8", page},
			{guardtest.Call{Body: "other"}, "application/problem+json", "key-reused"},
			{guardtest.Call{Method: http.MethodGet, NoBody: true}, "application/json", "completed"},
		} {
			tt.call.Header = http.Header{"Idempotency-Key": {"k"}, "Accept-Encoding": {"gzip"}} // or the client decodes it
			resp, err := s.Client.Do(s.Request(t.Context(), tt.call))
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, tt.mime, resp.Header.Get("Content-Type"))
			zip, err := gzip.NewReader(resp.Body)
			require.NoError(t, err)
			plain, err := io.ReadAll(zip)
			require.NoError(t, err, tt.mime)
			require.Contains(t, string(plain), tt.text)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err, "as long as it says")
		}
	})
}

// An upgrade is a GET request, so it passes a guard untouched. In a run nobody may take the
// connection over, because nobody would record what goes over it.
func TestUpgradePassesUntouched(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotImplemented)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		_ = conn.Close()
	})
	s := guardtest.ServeHTTP1(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRequired(true)).Handler(h))
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
	require.Equal(t, http.StatusSwitchingProtocols,
		s.Do(t, guardtest.Call{Method: http.MethodGet, Key: "k", Header: upgrade, NoBody: true}).Status)
	require.Equal(t, http.StatusNotImplemented, s.Do(t, guardtest.Call{Key: "k", Header: upgrade}).Status)
}

// The wrong way: a router inside a guard answers 404 for a route that it does not have, and
// the 404 is the recorded answer also after the route was added.
func TestNotFoundInsideIsRecorded(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		charge := guardtest.Answering(0, "charged")
		store := idempotency.NewMemoryStore()
		inside, outside := http.NewServeMux(), http.NewServeMux()
		s := serve(guardtest.NewGuard(t, store).Handler(inside))
		require.Equal(t, http.StatusNotFound, s.Do(t, guardtest.Call{Key: "k"}).Status)
		inside.Handle("/", charge)
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusNotFound, again.Status)
		require.True(t, again.Replayed())

		s = serve(outside)
		require.Equal(t, http.StatusNotFound, s.Do(t, guardtest.Call{Key: "k2"}).Status)
		outside.Handle("/", guardtest.NewGuard(t, store).Handler(charge))
		require.Equal(t, "charged", s.Do(t, guardtest.Call{Key: "k2"}).Body)
	})
}
