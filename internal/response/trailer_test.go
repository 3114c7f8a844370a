package response_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/response"
)

func TestTrailersAreReplayed(t *testing.T) {
	want := http.Header{"X-Checksum": {"123"}, "X-Cost": {"1", "2"}}
	handlers := map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Checksum, x-cost")
			w.Header().Add("Trailer", "Content-Length") // forbidden, and ignored
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Checksum", "123")
			w.Header()["X-Cost"] = []string{"1", "2"}
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
				first, again := twice(t, serve, h)
				for _, got := range []guardtest.Reply{first, again} {
					require.Equal(t, want, got.Trailer)
					require.Empty(t, got.Header.Values("X-Checksum"))
					require.Empty(t, got.Header.Values("X-Cost"))
				}
			})
		}
	})
}

// net/http sends a field that is set before the header is written and announced for the trailer in
// both. The answer and its replay do the same, and each place has the value of its moment.
func TestTrailersThatAreInTheHeaderToo(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"left alone": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
		},
		"changed": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Checksum", "123")
			w.Header()["X-Cost"][0] = "3"
		},
		"removed": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Del("X-Checksum")
		},
		"without a body": func(http.ResponseWriter, *http.Request) {},
		"behind a declared length": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Checksum", "123")
		},
	}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, h := range handlers {
			for _, flush := range []bool{false, true} {
				t.Run(name+", flushed "+strconv.FormatBool(flush), func(t *testing.T) {
					whole := func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Trailer", "X-Checksum, X-Cost")
						w.Header().Set("X-Checksum", "early")
						w.Header()["X-Cost"] = []string{"1", "2"}
						if name == "behind a declared length" {
							w.Header().Set("Content-Length", "4")
						}
						if flush {
							_ = http.NewResponseController(w).Flush()
						}
						h(w, r)
					}
					bare := serve(http.HandlerFunc(whole)).Do(t, guardtest.Call{})
					require.Equal(t, []string{"early"}, bare.Header.Values("X-Checksum"))
					first, again := twice(t, serve, whole)
					for _, got := range []guardtest.Reply{first, again} {
						for _, field := range []string{"X-Checksum", "X-Cost"} {
							require.Equal(t, strings.Join(bare.Trailer.Values(field), ", "), strings.Join(got.Trailer.Values(field), ", "), field)
							require.Equal(t, bare.Header.Values(field), got.Header.Values(field), field)
						}
					}
				})
			}
		}
	})
}

// A route judges the values of the trailer, and those of the header where the trailer has none.
func TestHeaderIsJudgedWithTheTrailer(t *testing.T) {
	rec := started(make(headerWriter), response.Settings{Limit: 1 << 10, Judged: true}, nil)
	rec.Header().Set("Trailer", "X-Changed, X-Removed")
	rec.Header().Set("X-Changed", "early")
	rec.Header().Set("X-Removed", "early")
	rec.WriteHeader(http.StatusOK)
	rec.Header().Set("X-Changed", "late")
	rec.Header().Del("X-Removed")
	rec.Close(true)
	require.Equal(t, []string{"late"}, rec.Written()["X-Changed"])
	require.Equal(t, []string{"early"}, rec.Written()["X-Removed"])
}

// A trailer is no way around what a header may not repeat.
func TestTrailersThatAreNotReplayed(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for _, flush := range []bool{false, true} {
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "Authentication-Info, X-Checksum, X-Auth-Token")
				w.Header().Set("X-Auth-Token", "secret") // in both
				_, _ = io.WriteString(w, "body")
				if flush {
					_ = http.NewResponseController(w).Flush()
				}
				w.Header().Set("Authentication-Info", "nextnonce=secret")
				w.Header().Set("X-Checksum", "123")
				w.Header().Set(http.TrailerPrefix+"Set-Cookie", "session=secret")
				w.Header().Set(http.TrailerPrefix+"X-Of-The-Route", "secret")
			})
			s := serve(&recording{handler: h, limit: 1 << 20, drop: []string{"X-Of-The-Route"}})
			first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
			require.True(t, again.Replayed())
			require.Equal(t, "secret", first.Header.Get("X-Auth-Token"))
			require.Equal(t, "secret", first.Trailer.Get("X-Auth-Token"))
			require.Empty(t, again.Header.Get("X-Auth-Token"))
			require.Equal(t, "nextnonce=secret", first.Trailer.Get("Authentication-Info"))
			require.Equal(t, "session=secret", first.Trailer.Get("Set-Cookie"))
			require.Equal(t, "secret", first.Trailer.Get("X-Of-The-Route"))
			require.Equal(t, http.Header{"X-Checksum": {"123"}}, again.Trailer)
		}
	})
}

// First answers and replays alike get the trailer of an outer handler, for example a server
// timing.
func TestTrailersOfOuterHandlersAreFresh(t *testing.T) {
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
				guarded := record(h)
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

// Over HTTP/1.1, net/http sends no trailer behind a length that the handler has declared. A replay
// has none then either, be it the handler's or that of an outer one.
func TestTrailersBehindADeclaredLength(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, set := range map[string]func(h http.Header){
			"announced":       func(h http.Header) { h.Set("X-Checksum", "123") },
			"with the prefix": func(h http.Header) { h.Set(http.TrailerPrefix+"X-Cost", "1") },
			"of an outer one": func(http.Header) {},
		} {
			for _, flush := range []bool{false, true} {
				h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if name == "announced" {
						w.Header().Add("Trailer", "X-Checksum")
					}
					w.Header().Set("Content-Length", "4")
					_, _ = io.WriteString(w, "body")
					if flush {
						_ = http.NewResponseController(w).Flush()
					}
					set(w.Header())
				})
				timed := func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if name == "of an outer one" {
							w.Header().Set("Trailer", "X-Timing")
						}
						next.ServeHTTP(w, r)
						w.Header().Set("X-Timing", "1")
					})
				}
				bare := serve(timed(h)).Do(t, guardtest.Call{Key: "k"})
				s := serve(timed(record(h)))
				first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
				require.True(t, again.Replayed())
				for _, got := range []guardtest.Reply{first, again} {
					require.Equal(t, bare.Trailer, got.Trailer)
					require.Equal(t, bare.Header.Get("Content-Length"), got.Header.Get("Content-Length"))
					require.Equal(t, bare.Body, got.Body)
				}
			}
		}
	})
}
