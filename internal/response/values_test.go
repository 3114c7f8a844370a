package response_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/response"
)

// The values of an answer are those of the moment of WriteHeader, as with net/http, whatever the handler
// does to their memory afterwards: it may have them from a pool, and give them back as it returns.

// changing returns a handler that changes all values of its header in place, and the header, as it returns.
func changing(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			trailer := slices.Clone(w.Header()["Trailer"])
			for name, values := range w.Header() {
				if slices.Contains(trailer, name) {
					continue
				}
				for i := range values {
					values[i] = "1"
				}
			}
			w.Header().Set("Location", "/changed")
		}()
		h(w, r)
	}
}

// settingFields sets fields that the handler finds, and adds to.
func settingFields(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Vary"] = []string{"Origin"}
		w.Header()["X-Request"] = []string{"outer"}
		h.ServeHTTP(w, r)
	})
}

func TestValuesAreThoseOfWriteHeader(t *testing.T) {
	write := func(w http.ResponseWriter) {
		h := w.Header()
		h["Content-Type"] = []string{"text/plain"}
		h["X-Tag"] = []string{"one", "two"}
		h["Location"] = []string{"/charges/1"}
		h["Vary"] = append(h["Vary"], "Accept")
		h["X-Request"] = []string{"handler"}
		h["Content-Length"] = []string{"4"}
		h["Set-Cookie"] = []string{"a=b"}
		w.WriteHeader(http.StatusCreated)
	}
	handlers := map[string]http.HandlerFunc{
		"buffered": func(w http.ResponseWriter, _ *http.Request) {
			write(w)
			_, _ = io.WriteString(w, "body")
		},
		"flushed": func(w http.ResponseWriter, _ *http.Request) {
			write(w)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "body")
		},
		"with a trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{"text/plain"}
			w.Header()["Trailer"] = []string{"X-Sum"}
			w.Header()["X-Tag"] = []string{"one"}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "body")
			w.Header()["X-Sum"] = []string{"sum"}
		},
	}
	for name, h := range handlers {
		t.Run(name, func(t *testing.T) {
			guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
				bare := serve(settingFields(changing(h))).Do(t, guardtest.Call{})
				s := serve(settingFields(record(changing(h))))
				first, again := s.Do(t, guardtest.Call{}), s.Do(t, guardtest.Call{})
				require.Equal(t, []string{"one"}, bare.Header["X-Tag"][:1])
				require.Equal(t, bare.Body, first.Body)
				require.Equal(t, bare.Trailer, first.Trailer)
				guardtest.RequireSameHeader(t, bare.Header, first.Header)
				first.Header.Del("Set-Cookie") // for the first client alone
				require.Equal(t, bare.Trailer, again.Trailer)
				guardtest.RequireSameHeader(t, first.Header, again.Header)
			})
		})
	}
}

// A recorder whose handler has returned, and whose header its goroutines go on to change.
func TestValuesAfterTheHandlerHasReturned(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		outer := make(headerWriter)
		rec := started(outer, response.Settings{Limit: 1 << 10, Judged: true}, nil)
		h := rec.Header()
		h["Location"], h["Retry-After"] = []string{"/charges/1"}, []string{"7"}
		h["Trailer"] = []string{"X-Sum"}
		rec.WriteHeader(http.StatusConflict)
		if flushed {
			rec.Flush()
		}
		h["X-Sum"] = []string{"sum"}
		h[http.TrailerPrefix+"X-More"] = []string{"more"}
		h["Retry-After"][0] = "changed"
		rec.Close(true)
		for _, values := range h {
			values[0] = "changed"
		}
		h["X-Late"] = []string{"changed"}
		require.Equal(t, "7", rec.Get("Retry-After"))
		require.Equal(t, http.Header{
			"Location": {"/charges/1"}, "Retry-After": {"7"}, "Trailer": {"X-Sum"},
			"X-Sum": {"sum"}, http.TrailerPrefix + "X-More": {"more"},
		}, rec.Written())
		notKept := rec.NotKept()
		require.Equal(t, "/charges/1", notKept.Location())
		a := rec.Answer()
		require.Equal(t, []answer.Field{{Name: "X-Sum", Values: []string{"sum"}}, {Name: "X-More", Values: []string{"more"}}}, a.Trailer)
		rec.Respond()
		require.Equal(t, []string{"7"}, outer["Retry-After"])
		require.Equal(t, []string{"sum"}, outer["X-Sum"])
		require.NotContains(t, outer, "X-Late")
		rec.DropBuffer()
	}
}

// What the answer has is found under its name, be it recorded, left out of the record, removed or set by
// outer handlers.
func TestGetFindsTheFieldsOfTheAnswer(t *testing.T) {
	outer := headerWriter{"Vary": {"Origin"}, "X-Outer": {"outer"}, "X-Removed": {"outer"}}
	rec := started(outer, response.Settings{Limit: 1 << 10}, nil)
	h := rec.Header()
	h.Add("Vary", "Accept")
	h.Del("X-Removed")
	h.Set("X-Own", "own")
	h.Set("Set-Cookie", "a=b")
	want := h.Clone()
	rec.WriteHeader(http.StatusOK)
	clear(h)
	for _, name := range []string{"Vary", "X-Outer", "X-Removed", "X-Own", "Set-Cookie", "X-None"} {
		require.Equal(t, want.Get(name), rec.Get(name), name)
	}
}

// A headerWriter is an http.ResponseWriter whose header is kept.
type headerWriter http.Header

func (w headerWriter) Header() http.Header         { return http.Header(w) }
func (w headerWriter) WriteHeader(int)             {}
func (w headerWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w headerWriter) FlushError() error           { return nil }

// A changingWriter belongs to an outer handler that appends to each value in place.
type changingWriter struct{ http.ResponseWriter }

func (w changingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w changingWriter) WriteHeader(status int) {
	for values := range maps.Values(w.Header()) {
		for i := range values {
			values[i] += "; outside"
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Of an answer that is too large, the Location is recorded that was written, whatever the handler and
// outer handlers have made of it since.
func TestLocationOfALargeAnswerIsTheOneThatWasWritten(t *testing.T) {
	for _, outer := range []headerWriter{{}, {"Location": {"/outer"}}} {
		rec := started(changingWriter{outer}, response.Settings{Limit: 64}, nil)
		rec.Header().Set("Location", "/charges/1")
		rec.WriteHeader(http.StatusCreated)
		rec.Header()["Location"][0] = "/changed"
		_, _ = rec.Write(make([]byte, 100))
		rec.Header().Set("Location", "/changed")
		rec.Close(true)
		a := rec.Answer()
		require.Equal(t, answer.KindNotKept, a.Kind)
		require.Equal(t, "/charges/1", a.Location())
		require.Equal(t, []string{"/charges/1; outside"}, outer["Location"])
	}
}

// What outer handlers make of the values, before the end of the answer or before the answer, is not
// recorded, and the handler does not see it.
func TestOuterHandlersChangeTheirOwnValues(t *testing.T) {
	guardtest.Each(t, map[string]func(w http.ResponseWriter){
		"flushed": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			_ = http.NewResponseController(w).Flush()
		},
		"informed": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
		},
		"informed and flushed": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
			_ = http.NewResponseController(w).Flush()
		},
	}, func(t *testing.T, begin func(w http.ResponseWriter)) {
		guarded := record(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-Tag"] = []string{"one"}
			w.Header()["Content-Type"] = []string{"text/plain"}
			begin(w)
			if got := w.Header()["X-Tag"][0]; got != "one" {
				t.Errorf("the handler finds %q", got)
			}
			_, _ = io.WriteString(w, "body")
		}))
		outer := true
		s := guardtest.ServeHTTP1(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if outer {
				w = changingWriter{w}
			}
			guarded.ServeHTTP(w, r)
		}))
		require.Equal(t, "one; outside", s.Do(t, guardtest.Call{}).Header.Get("X-Tag"))
		outer = false
		again := s.Do(t, guardtest.Call{})
		require.True(t, again.Replayed())
		require.Equal(t, "one", again.Header.Get("X-Tag"))
	})
}
