package wiretest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

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
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for where, out := range outsides(t) {
			for what, ask := range asks {
				for _, status := range []int{http.StatusCreated, http.StatusInternalServerError} {
					t.Run(fmt.Sprint(where, ", ", what, ", ", status), func(t *testing.T) {
						t.Parallel()
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
	t.Parallel()
	for where, out := range outsides(t) {
		if where == "a guard" || where == "a timeout, and a guard" {
			continue // which corrects too
		}
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				op, _ := idempotency.FromContext(r.Context())
				op.SetOutcome(idempotency.Unknown)
				w.Header().Set("Content-Type", "text/plain")
				err := http.NewResponseController(w).Flush()
				if (err == nil) != out.flushes {
					t.Errorf("flush: %v", err)
				}
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
