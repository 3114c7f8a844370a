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
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		first, again := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), fields)
			_, _ = io.WriteString(w, "{}")
		})
		for name, values := range fields {
			require.Equal(t, values, first.header.Values(name), name)
			require.Equal(t, values, again.header.Values(name), name)
		}
	})
}

// Whatever a handler sets can be read again.
func TestAnswerWithManyFieldsIsReplayed(t *testing.T) {
	t.Parallel()
	twice(t, func(h http.Handler) *server { return serveRecorder(t, h) }, func(w http.ResponseWriter, _ *http.Request) {
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
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{}
		s := serve(outside(newGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		for i := 1; i <= 3; i++ {
			origin := "https://" + strconv.Itoa(i) + ".example"
			got := s.do(t, call{key: "k", header: http.Header{"Origin": {origin}}})
			require.Equal(t, i > 1, got.replayed())
			require.Equal(t, []string{strconv.Itoa(i)}, got.header.Values("X-Request-Id"))
			require.Equal(t, []string{origin}, got.header.Values("Access-Control-Allow-Origin"))
			require.Equal(t, []string{"Origin"}, got.header.Values("Vary"))
			require.Equal(t, []string{"outside"}, got.header.Values("X-Powered-By"))
			require.Equal(t, []string{"outside=" + strconv.Itoa(i)}, got.header.Values("Set-Cookie"))
			require.Equal(t, []string{"k"}, got.header.Values("Idempotency-Key"))
		}
		require.EqualValues(t, 1, h.runs.Load())
	})
}

func TestHandlerChangesFieldsOfOuterHandlers(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Add("Vary", "Accept")
			w.Header().Del("X-Powered-By")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header()["X-Request-Id"][0] += "!" // a field's values are the handler's own
		}}
		s := serve(outside(newGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		first, again := s.do(t, call{key: "k"}), s.do(t, call{key: "k"})
		require.True(t, again.replayed())
		for _, got := range []reply{first, again} {
			require.Equal(t, []string{"Origin", "Accept"}, got.header.Values("Vary"))
			require.Empty(t, got.header.Values("X-Powered-By"))
			require.Equal(t, []string{"*"}, got.header.Values("Access-Control-Allow-Origin"))
			require.Equal(t, []string{"1!"}, got.header.Values("X-Request-Id"))
		}
		require.Equal(t, "outside=1", first.header.Get("Set-Cookie"))
		require.Equal(t, "outside=2", again.header.Get("Set-Cookie"))
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
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			for name, value := range fields {
				w.Header().Set(name, value)
			}
			w.Header().Set("X-Kept", "1")
			w.Header()["authentication-info"] = []string{"nextnonce=lower"}
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		resp, err := s.client.Do(s.request(t.Context(), call{key: "k"}))
		require.NoError(t, err)
		resp.Body.Close()
		for name, value := range fields {
			if resp.ProtoMajor == 2 && slices.Contains(connection, name) {
				continue // HTTP/2 forbids them
			}
			require.Equal(t, value, resp.Header.Get(name), "%s, live", name)
		}
		again := s.do(t, call{key: "k"})
		require.True(t, again.replayed())
		require.Equal(t, "1", again.header.Get("X-Kept"))
		require.NotContains(t, fmt.Sprint(again.header), "nextnonce=lower", "also a name in lower case")
		for name, value := range fields {
			require.NotEqual(t, value, again.header.Get(name), "%s, replayed", name)
		}
		require.Equal(t, s.real(), again.header.Get("Date") != "")
	})
}

func TestSuppressedFieldsStaySuppressed(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header()["Date"] = nil
			w.Header()["Content-Type"] = nil
			w.Header()["X-Powered-By"] = nil
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		}}
		s := serve(outside(newGuard(t, idempotency.NewMemoryStore()).Handler(h)))
		first, again := s.do(t, call{key: "k"}), s.do(t, call{key: "k"})
		require.True(t, again.replayed())
		require.NotContains(t, first.header, "Date")
		require.Contains(t, again.header, "Date", "a replay has a date of its own")
		for _, got := range []reply{first, again} {
			require.NotContains(t, got.header, "Content-Type")
			require.NotContains(t, got.header, "X-Powered-By")
		}
	})
}

// Whether an answer may be cached is the handler's to say, also of its replay.
func TestReplayMayBeCachedLikeTheAnswer(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		for _, values := range [][]string{nil, {"max-age=1"}} {
			first, again := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Cache-Control"] = values
			})
			require.Equal(t, values, first.header.Values("Cache-Control"))
			require.Equal(t, values, again.header.Values("Cache-Control"))
		}
		first, again := twice(t, serve, func(http.ResponseWriter, *http.Request) {})
		require.Empty(t, first.header.Values("Cache-Control"))
		require.Empty(t, again.header.Values("Cache-Control"))
	})
}

func TestEveryAnswerToAKeyEchoesIt(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.URL.Path == "/own" {
				w.Header().Set("Idempotency-Key", "the handler's")
			}
			if _, ok := w.Header()["Idempotency-Key"]; ok && r.URL.Path != "/own" {
				t.Error("the handler sees the echo")
			}
		}}
		g := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithMaxRequestBody(100))
		s := serve(g.Handler(h))
		for _, key := range []string{"k", `"quoted"`, `"quoted"`, "k"} {
			require.Equal(t, []string{key}, s.do(t, call{key: key}).header.Values("Idempotency-Key"))
		}
		refusals := []call{
			{key: "k", body: "other"},
			{key: "k", tenant: "unknown"},
			{key: "k", body: string(make([]byte, 101))},
		}
		for _, c := range refusals {
			got := s.do(t, c)
			require.NotEmpty(t, got.problem.Code)
			require.Equal(t, []string{"k"}, got.header.Values("Idempotency-Key"))
		}
		for range 2 {
			got := s.do(t, call{key: "own", path: "/own"})
			require.Equal(t, []string{"the handler's"}, got.header.Values("Idempotency-Key"))
		}
		other := serve(g.With(idempotency.WithHeader("X-Request-Key")).Handler(h))
		got := other.do(t, call{path: "/x", header: http.Header{"X-Request-Key": {"other"}}})
		require.Equal(t, []string{"other"}, got.header.Values("X-Request-Key"))
		require.Empty(t, s.do(t, call{}).header.Values("Idempotency-Key"))
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
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		for name, h := range handlers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				first, again := twice(t, serve, h)
				for _, got := range []reply{first, again} {
					require.Equal(t, want, got.trailer)
					require.Empty(t, got.header.Values("X-Checksum"))
					require.Empty(t, got.header.Values("X-Cost"))
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
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		for name, h := range handlers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				guarded := newGuard(t, idempotency.NewMemoryStore()).Handler(h)
				var requests atomic.Int64
				s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Trailer", "X-Timing")
					guarded.ServeHTTP(w, r)
					w.Header().Set("X-Timing", strconv.FormatInt(requests.Add(1), 10))
				}))
				for i := 1; i <= 2; i++ {
					got := s.do(t, call{key: "k"})
					require.Equal(t, i == 2, got.replayed())
					require.Equal(t, "body", got.body)
					require.Equal(t, []string{strconv.Itoa(i)}, got.trailer.Values("X-Timing"))
					if name != "plain" {
						require.Equal(t, []string{"123"}, got.trailer.Values("X-Checksum"))
					}
				}
			})
		}
	})
}
