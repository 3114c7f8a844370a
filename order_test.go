package idempotency_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// The tests of this file say what each kind of middleware does outside of a guard, and
// what goes wrong inside, where that is not obvious.

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

// Each client gets the encoding that it asked for, whoever came first.
func TestCompressionOutside(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "charged")
		}}
		s := serve(gzipped(newGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		for _, key := range []string{"gzip first", "identity first"} {
			for i := range 4 {
				encoding := "identity"
				if (i%2 == 0) == strings.HasPrefix(key, "gzip") {
					encoding = "gzip"
				}
				got := s.do(t, call{header: http.Header{"Idempotency-Key": {`"` + key + `"`}, "Accept-Encoding": {encoding}}})
				require.Equal(t, http.StatusCreated, got.status)
				require.Equal(t, i > 0, got.replayed())
				require.Equal(t, "Accept-Encoding", got.header.Get("Vary"))
				body := got.body
				if encoding == "gzip" {
					require.Equal(t, "gzip", got.header.Get("Content-Encoding"))
					zip, err := gzip.NewReader(strings.NewReader(body))
					require.NoError(t, err)
					plain, err := io.ReadAll(zip)
					require.NoError(t, err)
					body = string(plain)
				} else {
					require.Empty(t, got.header.Get("Content-Encoding"))
				}
				require.Equal(t, "charged", body)
			}
		}
		require.EqualValues(t, 2, h.runs.Load())
	})
}

// The wrong way: the compressed bytes are the answer that is recorded.
func TestCompressionInsideIsReplayedToAll(t *testing.T) {
	t.Parallel()
	s := serveRecorder(t, newGuard(t, idempotency.NewMemoryStore()).Handler(gzipped(&counter{})))
	first := s.do(t, call{key: "k", header: http.Header{"Accept-Encoding": {"gzip"}}})
	again := s.do(t, call{key: "k", header: http.Header{"Accept-Encoding": {"identity"}}})
	require.Equal(t, "gzip", again.header.Get("Content-Encoding"))
	require.Equal(t, first.body, again.body)
}

// The wrong way: the 503 of a timeout inside says that the run has ended, although the
// handler goes on, so that the next request runs beside it.
func TestTimeoutHandlerInsideRunsBesideItself(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		running, leave := make(chan struct{}, 2), make(chan struct{})
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			running <- struct{}{}
			<-leave
		})
		defer close(leave)
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(http.TimeoutHandler(slow, 1, "")))
		for range 2 {
			require.Equal(t, http.StatusServiceUnavailable, s.do(t, call{key: "k"}).status)
			<-running
		}
	})
}

// A preflight request reaches the handler that answers it, with a key demanded and without
// a scope: browsers send neither.
func TestPreflightPassesUntouched(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Access-Control-Allow-Headers", "Idempotency-Key")
			w.WriteHeader(http.StatusNoContent)
		}}
		s := serve(newGuard(t, store, idempotency.WithRequired(true)).Handler(h))
		preflight := call{method: http.MethodOptions, tenant: "unknown", noBody: true, header: http.Header{
			"Origin": {"https://app.test"}, "Access-Control-Request-Method": {"POST"},
			"Access-Control-Request-Headers": {"idempotency-key"},
		}}
		for range 2 {
			got := s.do(t, preflight)
			require.Equal(t, http.StatusNoContent, got.status)
			require.Equal(t, "Idempotency-Key", got.header.Get("Access-Control-Allow-Headers"))
			require.False(t, got.replayed())
		}
		require.EqualValues(t, 2, h.runs.Load())
		require.Zero(t, store.Len())
	})
}

// A replay is behind the same door as the run: who is not let in is not served one.
func TestChecksOutsideRunBeforeReplays(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{}
		guarded := newGuard(t, idempotency.NewMemoryStore()).Handler(h)
		signedIn := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer alice" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			guarded.ServeHTTP(w, r)
		})
		s := serve(http.NewCrossOriginProtection().Handler(signedIn))
		from := func(site, authorization string) reply {
			return s.do(t, call{key: "k", header: http.Header{"Sec-Fetch-Site": {site}, "Authorization": {authorization}}})
		}
		require.Equal(t, http.StatusCreated, from("same-origin", "Bearer alice").status)
		require.Equal(t, http.StatusUnauthorized, from("same-origin", "Bearer revoked").status)
		require.Equal(t, http.StatusForbidden, from("cross-site", "Bearer alice").status)
		require.True(t, from("same-origin", "Bearer alice").replayed())
		require.EqualValues(t, 1, h.runs.Load())
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

// Outside, the effective method is part of what the key is bound to. Inside it is not.
func TestMethodOverrideBelongsOutside(t *testing.T) {
	t.Parallel()
	method := func(name string) call {
		return call{key: "k", header: http.Header{"X-Http-Method-Override": {name}}}
	}
	outside := serveRecorder(t, overriding(newGuard(t, idempotency.NewMemoryStore()).Handler(&counter{})))
	require.Equal(t, http.StatusCreated, outside.do(t, method("PATCH")).status)
	requireProblem(t, outside.do(t, method("POST")), http.StatusConflict, problem.KeyReused)
	require.True(t, outside.do(t, method("PATCH")).replayed())

	inside := serveRecorder(t, newGuard(t, idempotency.NewMemoryStore()).Handler(overriding(&counter{})))
	inside.do(t, method("PATCH"))
	require.True(t, inside.do(t, method("DELETE")).replayed(), "the wrong way")
}

// zipWriter is the compressing writer of many programs: the coding is announced before the
// handler runs, and the status and header are those of the handler.
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

// What the guard knows is the length before compression.
func TestCompressionThatIsAnnouncedFirst(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		g := newGuard(t, idempotency.NewMemoryStore())
		mux := http.NewServeMux()
		page := "<html>" + strings.Repeat("charged ", 1000)
		mux.Handle("POST /", g.Handler(answering(0, page)))
		mux.Handle("GET /", g.LookupHandler())
		s := serve(zipped(mux))
		for _, tt := range []struct {
			call call
			mime string
			text string
		}{
			{call{}, "text/html; charset=utf-8", page},
			{call{}, "text/html; charset=utf-8", page},
			{call{body: "other"}, "application/problem+json", "key-reused"},
			{call{method: http.MethodGet, noBody: true}, "application/json", "completed"},
		} {
			tt.call.header = http.Header{"Idempotency-Key": {"k"}, "Accept-Encoding": {"gzip"}} // or the client decodes it
			resp, err := s.client.Do(s.request(t.Context(), tt.call))
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
