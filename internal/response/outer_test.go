package response_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
)

// An outer handler lets others write through it, as middleware for sessions does when a handler saves its session.
type through struct {
	http.ResponseWriter
	added bool
}

// WriteHeader adds fields of its own to the first head, also to an informational one.
func (w *through) WriteHeader(status int) {
	if !w.added {
		w.added = true
		w.Header().Add("Set-Cookie", "head=1")
		w.Header().Set("X-Head", "1")
	}
	w.ResponseWriter.WriteHeader(status)
}

// What is written through an outer handler during the run is in the first answer, and what outer handlers set before a
// replay stands in it.
func TestOuterHandlersMayWriteDuringTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		before       func(outer http.Header, request string)
		during       func(outer, inner http.Header)
		first, again http.Header
	}{
		"a cookie": {
			during: func(outer, _ http.Header) { outer.Add("Set-Cookie", "session=1") },
			first:  http.Header{"Set-Cookie": {"session=1", "head=1"}},
			again:  http.Header{"Set-Cookie": {"head=1"}},
		},
		"a cookie on each side": {
			before: func(outer http.Header, request string) { outer.Set("Set-Cookie", "fresh="+request) },
			during: func(outer, inner http.Header) {
				outer.Add("Set-Cookie", "session=1")
				inner.Add("Set-Cookie", "cart=tea")
			},
			first: http.Header{"Set-Cookie": {"fresh=1", "session=1", "cart=tea", "head=1"}},
			again: http.Header{"Set-Cookie": {"fresh=2", "head=1"}},
		},
		"the first cookies": {
			during: func(outer, inner http.Header) {
				outer.Add("Set-Cookie", "session=1")
				inner.Add("Set-Cookie", "cart=tea")
			},
			first: http.Header{"Set-Cookie": {"session=1", "cart=tea", "head=1"}},
			again: http.Header{"Set-Cookie": {"head=1"}},
		},
		"a field grows": {
			before: func(outer http.Header, request string) { outer.Set("Server-Timing", "total;desc="+request) },
			during: func(outer, _ http.Header) { outer.Add("Server-Timing", "db") },
			first:  http.Header{"Server-Timing": {"total;desc=1", "db"}},
			again:  http.Header{"Server-Timing": {"total;desc=2"}},
		},
		"a field grows on both sides": {
			before: func(outer http.Header, request string) { outer.Set("Server-Timing", "total;desc="+request) },
			during: func(outer, inner http.Header) {
				outer.Add("Server-Timing", "db")
				inner.Add("Server-Timing", "bank")
			},
			first: http.Header{"Server-Timing": {"total;desc=1", "db", "bank"}},
			again: http.Header{"Server-Timing": {"total;desc=2", "bank"}},
		},
		"a value changes in place": {
			before: func(outer http.Header, request string) { outer.Set("X-Step", "before "+request) },
			during: func(outer, _ http.Header) { outer["X-Step"][0] = "during" },
			first:  http.Header{"X-Step": {"during"}},
			again:  http.Header{"X-Step": {"before 2"}},
		},
		"the handler removes what has changed": {
			before: func(outer http.Header, request string) { outer.Set("X-Step", "before "+request) },
			during: func(outer, inner http.Header) { outer.Set("X-Step", "during"); inner.Del("X-Step") },
			first:  http.Header{"X-Step": {"during"}},
			again:  http.Header{"X-Step": {"before 2"}},
		},
		"the handler replaces what has changed": {
			before: func(outer http.Header, request string) { outer.Set("X-Step", "before "+request) },
			during: func(outer, inner http.Header) { outer.Set("X-Step", "during"); inner.Set("X-Step", "handler") },
			first:  http.Header{"X-Step": {"handler"}},
			again:  http.Header{"X-Step": {"handler"}},
		},
		"the handler sets what was set meanwhile": {
			during: func(outer, inner http.Header) { outer.Set("Location", "/a"); inner.Set("Location", "/b") },
			first:  http.Header{"Location": {"/b"}},
			again:  http.Header{"Location": {"/b"}},
		},
	} {
		for _, informed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var outer http.Header
				requests := 0
				h := record(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if informed {
						w.Header().Set("Link", "</style.css>; rel=preload")
						w.WriteHeader(http.StatusEarlyHints)
						w.Header().Del("Link")
					}
					c.during(outer, w.Header())
					w.WriteHeader(http.StatusCreated)
				}))
				s := guardtest.ServeHTTP1(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					requests++
					outer = w.Header()
					if c.before != nil {
						c.before(outer, string(rune('0'+requests)))
					}
					h.ServeHTTP(&through{ResponseWriter: w}, r)
				}))
				first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
				require.True(t, again.Replayed())
				require.Empty(t, first.Header.Values("Link"))
				require.Equal(t, "1", first.Header.Get("X-Head"))
				require.Equal(t, "1", again.Header.Get("X-Head"))
				for name, values := range c.first {
					require.ElementsMatch(t, values, first.Header.Values(name), "first: %s", name)
				}
				for name, values := range c.again {
					require.ElementsMatch(t, values, again.Header.Values(name), "again: %s", name)
				}
			})
		}
	}
}

// A trailer of an outer handler is sent once, fresh on each answer, and is no handler's.
func TestPrefixedTrailersOfOuterHandlersAreFresh(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		requests := 0
		h := record(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("charged"))
		}))
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests++
			w.Header().Set(http.TrailerPrefix+"X-Request-Id", string(rune('0'+requests)))
			h.ServeHTTP(w, r)
		}))
		for i, request := range []string{"1", "2"} {
			got := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, i > 0, got.Replayed())
			require.Equal(t, []string{request}, got.Trailer.Values("X-Request-Id"))
			require.Equal(t, []string{"42"}, got.Trailer.Values("X-Sum"))
		}
	})
}
