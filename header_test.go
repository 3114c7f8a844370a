package idempotency_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// outside is what stands between a guard and the client in most services: fields of its
// own on each answer, different each time.
func outside(next http.Handler) http.Handler {
	var requests atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Request-Id", strconv.FormatInt(requests.Add(1), 10))
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		h.Add("Vary", "Origin")
		h.Set("X-Powered-By", "outside")
		h.Add("Set-Cookie", "outside="+h.Get("X-Request-Id"))
		next.ServeHTTP(w, r)
	})
}

func TestFieldsOfTheAnswerAreReplayed(t *testing.T) {
	t.Parallel()
	fields := http.Header{
		"Etag":            {`"v1"`},
		"Link":            {"</a>; rel=next", "</b>; rel=prev"},
		"Cache-Control":   {"private, max-age=60"},
		"Retry-After":     {"7"},
		"Location":        {"/charges/1"},
		"Vary":            {"Accept", "Accept-Language"},
		"Last-Modified":   {"Mon, 02 Jan 2006 15:04:05 GMT"},
		"Content-Type":    {"application/json; charset=utf-8"},
		"X-Rate-Limit":    {"10"},
		"X-Empty":         {""},
		"X-Internal-Utf8": {"grün"},
	}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		first, again := guardtest.Twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), fields)
			_, _ = io.WriteString(w, "{}")
		})
		for name, values := range fields {
			require.Equal(t, values, first.Header.Values(name), name)
			require.Equal(t, values, again.Header.Values(name), name)
		}
	})
}

// Whatever a handler sets can be read again.
func TestAnswerWithManyFieldsIsReplayed(t *testing.T) {
	t.Parallel()
	guardtest.Twice(t, func(h http.Handler) *guardtest.Server { return guardtest.ServeRecorder(t, h) }, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 5000 {
			w.Header().Set("X-"+strconv.Itoa(i), "1")
			w.Header().Add("X-All", strconv.Itoa(i))
		}
		_, _ = io.WriteString(w, "many")
	})
}

// What outer handlers set belongs to the request that is answered, not to the one that
// was recorded, and appears once.
func TestFieldsOfOuterHandlersAreFresh(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{}
		s := serve(outside(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		for i := 1; i <= 3; i++ {
			origin := "https://" + strconv.Itoa(i) + ".example"
			got := s.Do(t, guardtest.Call{Key: "k", Header: http.Header{"Origin": {origin}}})
			require.Equal(t, i > 1, got.Replayed())
			require.Equal(t, []string{strconv.Itoa(i)}, got.Header.Values("X-Request-Id"))
			require.Equal(t, []string{origin}, got.Header.Values("Access-Control-Allow-Origin"))
			require.Equal(t, []string{"Origin"}, got.Header.Values("Vary"))
			require.Equal(t, []string{"outside"}, got.Header.Values("X-Powered-By"))
			require.Equal(t, []string{"outside=" + strconv.Itoa(i)}, got.Header.Values("Set-Cookie"))
			require.Equal(t, []string{"k"}, got.Header.Values("Idempotency-Key"))
		}
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

func TestHandlerChangesFieldsOfOuterHandlers(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Add("Vary", "Accept")
			w.Header().Del("X-Powered-By")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header()["X-Request-Id"][0] += "!" // a field's values are the handler's own
		}}
		s := serve(outside(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		for _, got := range []guardtest.Reply{first, again} {
			require.Equal(t, []string{"Origin", "Accept"}, got.Header.Values("Vary"))
			require.Empty(t, got.Header.Values("X-Powered-By"))
			require.Equal(t, []string{"*"}, got.Header.Values("Access-Control-Allow-Origin"))
			require.Equal(t, []string{"1!"}, got.Header.Values("X-Request-Id"))
		}
		require.Equal(t, "outside=1", first.Header.Get("Set-Cookie"))
		require.Equal(t, "outside=2", again.Header.Get("Set-Cookie"))
	})
}

// What describes the connection or the moment, and what gives rights, is for the client
// that caused the run alone.
func TestFieldsThatAreNotReplayed(t *testing.T) {
	t.Parallel()
	fields := map[string]string{
		"Set-Cookie":          "session=secret",
		"Set-Cookie2":         "session=secret",
		"Authorization":       "Bearer secret",
		"Authentication-Info": "nextnonce=secret",
		"Www-Authenticate":    "Basic",
		"Proxy-Authenticate":  "Basic",
		"Proxy-Authorization": "Basic secret",
		"Date":                "Mon, 02 Jan 2006 15:04:05 GMT",
		"Idempotent-Replayed": "false",
		"Keep-Alive":          "timeout=5",
		"Proxy-Connection":    "keep-alive",
		"Upgrade":             "h2c",
		"Connection":          "X-Nominated , x-other",
		"X-Nominated":         "1",
		"X-Other":             "1",
	}
	connection := []string{"Keep-Alive", "Proxy-Connection", "Upgrade", "Connection"}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			for name, value := range fields {
				w.Header().Set(name, value)
			}
			w.Header().Set("X-Kept", "1")
			w.Header()["authentication-info"] = []string{"nextnonce=lower"}
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		resp, err := s.Client.Do(s.Request(t.Context(), guardtest.Call{Key: "k"}))
		require.NoError(t, err)
		resp.Body.Close()
		for name, value := range fields {
			if resp.ProtoMajor == 2 && slices.Contains(connection, name) {
				continue // HTTP/2 forbids them
			}
			require.Equal(t, value, resp.Header.Get(name), "%s, live", name)
		}
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, "1", again.Header.Get("X-Kept"))
		require.NotContains(t, fmt.Sprint(again.Header), "nextnonce=lower", "also a name in lower case")
		for name, value := range fields {
			require.NotEqual(t, value, again.Header.Get(name), "%s, replayed", name)
		}
		require.Equal(t, s.Real(), again.Header.Get("Date") != "")
	})
}

func TestSuppressedFieldsStaySuppressed(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header()["Date"] = nil
			w.Header()["Content-Type"] = nil
			w.Header()["X-Powered-By"] = nil
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		}}
		s := serve(outside(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.NotContains(t, first.Header, "Date")
		require.Contains(t, again.Header, "Date", "a replay has a date of its own")
		for _, got := range []guardtest.Reply{first, again} {
			require.NotContains(t, got.Header, "Content-Type")
			require.NotContains(t, got.Header, "X-Powered-By")
		}
	})
}

// Whether an answer may be cached is the handler's to say, also of its replay.
func TestReplayMayBeCachedLikeTheAnswer(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for _, values := range [][]string{nil, {"max-age=1"}} {
			first, again := guardtest.Twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Cache-Control"] = values
			})
			require.Equal(t, values, first.Header.Values("Cache-Control"))
			require.Equal(t, values, again.Header.Values("Cache-Control"))
		}
		first, again := guardtest.Twice(t, serve, func(http.ResponseWriter, *http.Request) {})
		require.Empty(t, first.Header.Values("Cache-Control"))
		require.Empty(t, again.Header.Values("Cache-Control"))
	})
}

func TestEveryAnswerToAKeyEchoesIt(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.URL.Path == "/own" {
				w.Header().Set("Idempotency-Key", "the handler's")
			}
			if _, ok := w.Header()["Idempotency-Key"]; ok && r.URL.Path != "/own" {
				t.Error("the handler sees the echo")
			}
		}}
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithMaxRequestBody(100))
		s := serve(g.Handler(h))
		for _, key := range []string{"k", `"quoted"`, `"quoted"`, "k"} {
			require.Equal(t, []string{key}, s.Do(t, guardtest.Call{Key: key}).Header.Values("Idempotency-Key"))
		}
		refusals := []guardtest.Call{
			{Key: "k", Body: "other"},
			{Key: "k", Tenant: "unknown"},
			{Key: "k", Body: string(make([]byte, 101))},
		}
		for _, c := range refusals {
			got := s.Do(t, c)
			require.NotEmpty(t, got.Problem.Code)
			require.Equal(t, []string{"k"}, got.Header.Values("Idempotency-Key"))
		}
		for range 2 {
			got := s.Do(t, guardtest.Call{Key: "own", Path: "/own"})
			require.Equal(t, []string{"the handler's"}, got.Header.Values("Idempotency-Key"))
		}
		other := serve(g.With(idempotency.WithHeader("X-Request-Key")).Handler(h))
		got := other.Do(t, guardtest.Call{Path: "/x", Header: http.Header{"X-Request-Key": {"other"}}})
		require.Equal(t, []string{"other"}, got.Header.Values("X-Request-Key"))
		require.Empty(t, s.Do(t, guardtest.Call{}).Header.Values("Idempotency-Key"))
	})
}

func TestTrailersAreReplayed(t *testing.T) {
	t.Parallel()
	want := http.Header{"X-Checksum": {"123"}, "X-Cost": {"1", "2"}}
	handlers := map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Checksum, x-cost")
			w.Header().Add("Trailer", "Content-Length") // forbidden, and ignored
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Checksum", "123")
			w.Header()["X-Cost"] = []string{"1", "2"}
		},
		"announced and set before the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Trailer"] = []string{"X-Checksum", "X-Cost"}
			w.Header().Set("X-Checksum", "wrong")
			w.Header()["X-Cost"] = []string{"1", "2"}
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Checksum", "123")
		},
		"with the prefix": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set(http.TrailerPrefix+"X-Checksum", "123")
			w.Header()[http.TrailerPrefix+"X-Cost"] = []string{"1", "2"}
		},
		"without a body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Checksum")
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Checksum", "123")
			w.Header()[http.TrailerPrefix+"X-Cost"] = []string{"1", "2"}
		},
		"after a flush": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Checksum")
			_, _ = io.WriteString(w, "bo")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "dy")
			w.Header().Set("X-Checksum", "123")
			w.Header()[http.TrailerPrefix+"X-Cost"] = []string{"1", "2"}
		},
	}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, h := range handlers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				first, again := guardtest.Twice(t, serve, h)
				for _, got := range []guardtest.Reply{first, again} {
					require.Equal(t, want, got.Trailer)
					require.Empty(t, got.Header.Values("X-Checksum"))
					require.Empty(t, got.Header.Values("X-Cost"))
				}
			})
		}
	})
}

// A trailer of an outer handler, a server timing for example, is added to first answers
// and replays alike.
func TestTrailersOfOuterHandlersAreFresh(t *testing.T) {
	t.Parallel()
	handlers := map[string]http.HandlerFunc{
		"plain": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "body") },
		"with a trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Trailer", "X-Checksum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Checksum", "123")
		},
		"streamed with a trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Trailer", "X-Checksum")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Checksum", "123")
		},
	}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, h := range handlers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)
				var requests atomic.Int64
				s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Trailer", "X-Timing")
					guarded.ServeHTTP(w, r)
					w.Header().Set("X-Timing", strconv.FormatInt(requests.Add(1), 10))
				}))
				for i := 1; i <= 2; i++ {
					got := s.Do(t, guardtest.Call{Key: "k"})
					require.Equal(t, i == 2, got.Replayed())
					require.Equal(t, "body", got.Body)
					require.Equal(t, []string{strconv.Itoa(i)}, got.Trailer.Values("X-Timing"))
					if name != "plain" {
						require.Equal(t, []string{"123"}, got.Trailer.Values("X-Checksum"))
					}
				}
			})
		}
	})
}
