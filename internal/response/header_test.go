package response_test

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

	"example.com/idempotency/internal/guardtest"
)

// outside is an outer handler like those of most services. It sets fields of its own on each
// answer, with other values each time.
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
		first, again := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), fields)
			_, _ = io.WriteString(w, "{}")
		})
		for name, values := range fields {
			require.Equal(t, values, first.Header.Values(name), name)
			require.Equal(t, values, again.Header.Values(name), name)
		}
	})
}

// An answer can have more fields than any handler sets.
func TestAnswerWithManyFieldsIsReplayed(t *testing.T) {
	twice(t, func(h http.Handler) *guardtest.Server { return guardtest.ServeRecorder(t, h) }, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 700 {
			w.Header().Set("X-"+strconv.Itoa(i), "1")
			w.Header().Add("X-All", strconv.Itoa(i))
		}
		_, _ = io.WriteString(w, "many")
	})
}

// Fields of outer handlers belong to the request that is answered and not to the recorded
// one, and appear once.
func TestFieldsOfOuterHandlersAreFresh(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{}
		s := serve(outside(record(h)))
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
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Add("Vary", "Accept")
			w.Header().Del("X-Powered-By")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header()["X-Request-Id"][0] += "!" // a field's values are the handler's own
		}}
		s := serve(outside(record(h)))
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

// What a handler adds to a field of an outer handler is added to the value that the outer
// handler has for each answer, and not to the one that was recorded.
func TestAddedValuesFollowThoseOfOuterHandlers(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for _, flush := range []bool{false, true} {
			h := record(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Add("Server-Timing", "charge;dur=7")
				if flush {
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = io.WriteString(w, "charged")
			}))
			var requests atomic.Int64
			s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Server-Timing", "outside;dur="+strconv.FormatInt(requests.Add(1), 10))
				h.ServeHTTP(w, r)
			}))
			for i := 1; i <= 2; i++ {
				got := s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, i == 2, got.Replayed())
				require.Equal(t, []string{"outside;dur=" + strconv.Itoa(i), "charge;dur=7"}, got.Header.Values("Server-Timing"))
			}
		}
	})
}

// A Connection field names a field that the handler has added to. The first answer has all of its
// values, and a replay has only those of the outer handler.
func TestAddedValuesOfANominatedFieldAreNotReplayed(t *testing.T) {
	h := record(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "X-Hop")
		w.Header().Add("X-Hop", "inside")
		_, _ = io.WriteString(w, "charged")
	}))
	s := guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Hop", "outside")
		h.ServeHTTP(w, r)
	}))
	require.Equal(t, []string{"outside", "inside"}, s.Do(t, guardtest.Call{Key: "k"}).Header.Values("X-Hop"))
	again := s.Do(t, guardtest.Call{Key: "k"})
	require.True(t, again.Replayed())
	require.Equal(t, []string{"outside"}, again.Header.Values("X-Hop"))
}

// httputil.ReverseProxy clears the header after each informational answer. That is not a wish
// to remove what outer handlers have set.
func TestClearingAfterAnInformationalAnswerRemovesNothing(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Add("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			clear(w.Header())
			w.Header().Set("Etag", `"1"`)
		}}
		s := serve(outside(record(h)))
		for i := 1; i <= 2; i++ {
			got := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, i == 2, got.Replayed())
			require.Equal(t, strconv.Itoa(i), got.Header.Get("X-Request-Id"))
			require.Equal(t, "outside", got.Header.Get("X-Powered-By"))
			require.Equal(t, "outside="+strconv.Itoa(i), got.Header.Get("Set-Cookie"))
			require.Equal(t, `"1"`, got.Header.Get("Etag"))
			require.Empty(t, got.Header.Get("Link"))
		}
	})
}

// Fields that describe the connection or the moment, or give rights, are for the client that
// caused the run alone.
func TestFieldsThatAreNotReplayed(t *testing.T) {
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
		"X-Auth-Token":        "secret",
		"X-Api-Key":           "secret",
		"Api-Key":             "secret",
		"X-Amz-Access-Key":    "secret",
		"Token":               "secret",
		"X-Vault-Token":       "secret",
		"X-Authtoken":         "secret",
		"Session-Id":          "secret",
		"X-Session":           "secret",
		"X-Client-Secret":     "secret",
		"Dpop-Nonce":          "secret",
		"X-Of-The-Route":      "secret",
	}
	connection := []string{"Keep-Alive", "Proxy-Connection", "Upgrade", "Connection"}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			for name, value := range fields {
				w.Header().Set(name, value)
			}
			w.Header().Set("X-Kept", "1")
			w.Header()["authentication-info"] = []string{"nextnonce=lower"}
			w.Header()["connection"] = []string{"x-lower"}
			w.Header()["x-lower"] = []string{"hop-by-hop=lower"}
			w.Header()["x-other"] = []string{"hop-by-hop=lower"}
			w.Header()["idempotent-replayed"] = []string{"false"}
		}}
		s := serve(&recording{handler: h, limit: 1 << 20, drop: []string{"X-Of-The-Route"}})
		resp, err := s.Client.Do(s.Request(t.Context(), guardtest.Call{Key: "k"}))
		require.NoError(t, err)
		resp.Body.Close()
		for name, value := range fields {
			if resp.ProtoMajor == 2 && slices.Contains(connection, name) {
				continue // HTTP/2 forbids them
			}
			if name == "Idempotent-Replayed" {
				value = "" // it would say that this answer is a replay
			}
			require.Equal(t, value, resp.Header.Get(name), "%s, live", name)
		}
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, "1", again.Header.Get("X-Kept"))
		for _, value := range []string{"nextnonce=lower", "hop-by-hop=lower"} {
			require.NotContains(t, fmt.Sprint(again.Header), value, "also a name in lower case")
		}
		for name, value := range fields {
			require.NotEqual(t, value, again.Header.Get(name), "%s, replayed", name)
		}
		require.Equal(t, s.Real(), again.Header.Get("Date") != "")
	})
}

func TestSuppressedFieldsStaySuppressed(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header()["Date"] = nil
			w.Header()["Content-Type"] = nil
			w.Header()["X-Powered-By"] = nil
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		}}
		s := serve(outside(record(h)))
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
