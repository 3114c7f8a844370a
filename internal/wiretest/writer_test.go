package wiretest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Who owns the values of header fields: a handler outside of the guard, and the handler inside, may
// change theirs in place, whenever net/http allows it. No other answer may show it.

// A marker appends its mark to each value of the header that it is given, in place.
type marker struct {
	http.ResponseWriter
	mark string
}

func (w marker) WriteHeader(status int) {
	for _, values := range w.Header() {
		for i := range values {
			values[i] += w.mark
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w marker) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A fieldCase is a request, and the status of its answer.
type fieldCase struct {
	method, path, key, body string
	status                  int
}

// fieldCases are requests that get every field that a guard makes, from a fieldAPI.
var fieldCases = []fieldCase{
	{"POST", "/charges", "k", "1", http.StatusCreated},
	{"POST", "/charges", "k", "1", http.StatusCreated},  // a replay
	{"POST", "/charges", "k", "2", http.StatusConflict}, // another payload
	{"POST", "/flushed", "f", "1", http.StatusCreated},
	{"POST", "/flushed", "f", "1", http.StatusCreated},
	{"POST", "/charges", "k,k", "1", http.StatusBadRequest},
	{"POST", "/charges", "", "1", http.StatusBadRequest},
	{"POST", "/later", "k", "1", http.StatusServiceUnavailable}, // with Retry-After
	{"GET", "/keys", "k", "", http.StatusOK},
}

// A fieldAPI has a route for each way in which a guard makes an answer.
type fieldAPI struct{ mux http.ServeMux }

func newFieldAPI(t *testing.T) *fieldAPI {
	options := []idempotency.Option{
		idempotency.WithRequired(true), idempotency.WithExpiryHeader(guardtest.ExpiryHeader),
		idempotency.WithPolicyURL("https://api.example.com/policy"),
	}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), options...)
	later := guardtest.NewGuard(t, idempotency.NewMemoryStore(), append(options,
		idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) {
			return idempotency.Fingerprint{}, idempotency.ErrTryLater
		}))...)
	api := new(fieldAPI)
	api.mux.Handle("/charges", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Own"] = []string{"one", "two"}
		w.WriteHeader(http.StatusCreated)
	})))
	api.mux.Handle("/flushed", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Own"] = []string{"one", "two"}
		w.WriteHeader(http.StatusCreated)
		_ = http.NewResponseController(w).Flush()
	})))
	api.mux.Handle("/later", later.Handler(guardtest.Answering(0, "")))
	api.mux.Handle("/keys", guard.LookupHandler())
	return api
}

// do makes a request of a tenant and returns the values of the answer's header, of which there is
// one for each field that a guard makes. The mark, if there is one, is that of the handler outside.
func (a *fieldAPI) do(t *testing.T, c fieldCase, tenant, mark string) string {
	r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader(c.body))
	r.Header.Set("X-Tenant", tenant)
	if c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	got := httptest.NewRecorder()
	var w http.ResponseWriter = got
	if mark != "" {
		w = marker{got, mark}
	}
	a.mux.ServeHTTP(w, r)
	assert.Equal(t, c.status, got.Code)
	assert.Equal(t, c.key, r.Header.Get("Idempotency-Key"), "the header of the request was changed")
	return fmt.Sprint(got.Header())
}

func TestChangedValuesAreOfOneAnswer(t *testing.T) {
	api := newFieldAPI(t)
	for _, c := range fieldCases {
		require.NotContains(t, api.do(t, c, "first", ""), "<mark>")
	}
	for _, c := range fieldCases {
		marked := api.do(t, c, "marked", "<mark>")
		require.Contains(t, marked, "<mark>")
		require.NotContains(t, marked, "<mark><mark>", "two fields share their values")
	}
	for _, tenant := range []string{"marked", "later"} {
		for _, c := range fieldCases {
			require.NotContains(t, api.do(t, c, tenant, ""), "<mark>")
		}
	}
}

// With the race detector this finds values that two answers share, even if no value is wrong.
func TestValuesAreChangedAtTheSameTime(t *testing.T) {
	api := newFieldAPI(t)
	var wg sync.WaitGroup
	for n := range 8 {
		own := fmt.Sprintf("<mark %d>", n)
		wg.Go(func() {
			for i := range 30 {
				tenant := fmt.Sprintf("t%d-%d", n, i)
				for _, c := range fieldCases {
					got := api.do(t, c, tenant, own)
					assert.NotContains(t, strings.ReplaceAll(got, own, ""), "<mark")
				}
			}
		})
	}
	wg.Wait()
}

// A handler may have its values from a pool, and give them back as it returns. With the race detector
// this finds values that are read after that, even if no value is wrong.
func TestValuesFromAPool(t *testing.T) {
	pool := sync.Pool{New: func() any { return new([3]string) }}
	h := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := pool.Get().(*[3]string)
		defer pool.Put(values)
		key := r.Header.Get("Idempotency-Key")
		*values = [3]string{key, key, key}
		w.Header()["X-For"], w.Header()["Set-Cookie"], w.Header()["Location"] = values[0:1], values[1:2], values[2:3]
		w.WriteHeader(http.StatusCreated)
		if strings.HasSuffix(key, "0") {
			_ = http.NewResponseController(w).Flush()
		}
	}))
	s := guardtest.ServeHTTP1(t, h)
	guardtest.Together(8, func(n int) {
		for i := range 30 {
			key := fmt.Sprintf("k-%d-%d", n, i)
			for _, name := range []string{"Set-Cookie", "X-For"} { // a replay has no Set-Cookie
				got := s.Attempt(t, guardtest.Call{Key: key})
				assert.Equal(t, key, got.Header.Get(name))
				assert.Equal(t, key, got.Header.Get("X-For"))
				assert.Equal(t, key, got.Header.Get("Location"))
			}
		}
	})
}

// What a handler asks of its writer besides writing, where handlers outside of the guard have left the
// writer fewer abilities than a server's has. What is not there changes nothing.

// An outside is a handler outside of a guard.
type outside struct {
	wrap    func(http.Handler) http.Handler
	flushes bool // something can be sent before the answer ends
}

// wrapping returns a handler that gives the next one another writer.
func wrapping(wrap func(http.ResponseWriter) http.ResponseWriter) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(wrap(w), r) })
	}
}

type (
	bareWriter      struct{ http.ResponseWriter }
	unwrappedWriter struct{ http.ResponseWriter }
	// A hopefulWriter has Flush whatever is behind it.
	hopefulWriter struct{ unwrappedWriter }
	// A flushWriter can flush, and nothing else.
	flushWriter struct {
		http.ResponseWriter
		http.Flusher
	}
)

func (w unwrappedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w hopefulWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func outsides(t *testing.T) map[string]outside {
	bare := func(w http.ResponseWriter) http.ResponseWriter { return bareWriter{w} }
	timeout := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, wirePatience, "") }
	guarded := func(next http.Handler) http.Handler {
		return guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(next)
	}
	return map[string]outside{
		"nothing":   {func(next http.Handler) http.Handler { return next }, true},
		"a guard":   {guarded, true},
		"a timeout": {timeout, false},
		"a timeout, and a guard": {
			func(next http.Handler) http.Handler { return timeout(guarded(next)) }, false,
		},
		"a bare writer": {wrapping(bare), false},
		"a writer that flushes": {
			wrapping(func(w http.ResponseWriter) http.ResponseWriter { return flushWriter{w, w.(http.Flusher)} }), true,
		},
		"a writer that unwraps": {
			wrapping(func(w http.ResponseWriter) http.ResponseWriter { return unwrappedWriter{w} }), true,
		},
		"one that unwraps to a bare one": {
			wrapping(func(w http.ResponseWriter) http.ResponseWriter { return unwrappedWriter{bare(w)} }), false,
		},
		"one that hopes": {
			wrapping(func(w http.ResponseWriter) http.ResponseWriter { return hopefulWriter{unwrappedWriter{w}} }), true,
		},
		"one that hopes in vain": {
			wrapping(func(w http.ResponseWriter) http.ResponseWriter { return hopefulWriter{unwrappedWriter{bare(w)}} }), false,
		},
	}
}

// asks are what handlers ask of a writer before they answer. Hijack is missing: without a guard it
// leads to another answer.
var asks = map[string]func(w http.ResponseWriter){
	"nothing": func(http.ResponseWriter) {},
	"Flush":   func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	"Flush of what is written": func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "a part ")
		_ = http.NewResponseController(w).Flush()
	},
	"deadlines": func(w http.ResponseWriter) {
		c := http.NewResponseController(w)
		_, _ = c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})
	},
	"EnableFullDuplex": func(w http.ResponseWriter) { _ = http.NewResponseController(w).EnableFullDuplex() },
	"CloseNotify": func(w http.ResponseWriter) {
		if n, ok := w.(interface{ CloseNotify() <-chan bool }); ok {
			n.CloseNotify()
		}
	},
	"Push": func(w http.ResponseWriter) {
		if p, ok := w.(http.Pusher); ok {
			_ = p.Push("/style.css", nil)
		}
	},
	"ReadFrom": func(w http.ResponseWriter) {
		if r, ok := w.(io.ReaderFrom); ok {
			_, _ = r.ReadFrom(strings.NewReader("a part "))
		} else {
			_, _ = io.WriteString(w, "a part ")
		}
	},
}

// The client gets the answer that it would get without a guard, and what the handler says decides what the next
// request gets, also if it has said it too late.
func TestWriterWithoutAnAbilityIsAskedForIt(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for where, out := range outsides(t) {
			for what, ask := range asks {
				for _, status := range []int{http.StatusCreated, http.StatusInternalServerError} {
					t.Run(fmt.Sprint(where, ", ", what, ", ", status), func(t *testing.T) {
						var handler http.HandlerFunc = func(w http.ResponseWriter, _ *http.Request) {
							ask(w)
							w.WriteHeader(status)
							_, _ = io.WriteString(w, "done")
						}
						h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) { handler(w, r) }}
						quietly := func(h http.Handler) *guardtest.Server { return serve(out.wrap(h)) }
						bare := quietly(handler).Do(t, guardtest.Call{Key: "bare"})
						s := quietly(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
						first := s.Do(t, guardtest.Call{Key: "k"})
						require.Equal(t, bare.Status, first.Status)
						require.Equal(t, bare.Body, first.Body)
						again := s.Do(t, guardtest.Call{Key: "k"})
						require.Equal(t, first.Status, again.Status)
						require.Equal(t, first.Body, again.Body)
						require.Equal(t, status < http.StatusInternalServerError, again.Replayed())
					})
				}
			}
		}
	})
}

// As long as nothing of an answer has left, the client of an Unknown run can still be told what is
// true of it.
func TestFlushThatSendsNothingIsCorrected(t *testing.T) {
	for where, out := range outsides(t) {
		if where == "a guard" || where == "a timeout, and a guard" {
			continue // which corrects too
		}
		t.Run(where, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				guardtest.Op(r.Context()).SetOutcome(idempotency.Unknown)
				w.Header().Set("Content-Type", "text/plain")
				err := http.NewResponseController(w).Flush()
				assert.Equal(t, out.flushes, err == nil, "flush: %v", err)
				w.WriteHeader(http.StatusPaymentRequired)
			})
			s := guardtest.ServeHTTP1(t, out.wrap(guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Rerun)).Handler(h)))
			got := s.Do(t, guardtest.Call{Key: "k"})
			if out.flushes {
				require.Equal(t, http.StatusOK, got.Status, "it is out")
				return
			}
			guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.NoAnswer)
		})
	}
}
