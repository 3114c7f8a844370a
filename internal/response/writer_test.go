package response_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
)

// The client must not be able to tell whether the handler writes to a Recorder, neither from
// the first answer nor from the replay.
func TestAnswerIsThatOfTheBareHandler(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"nothing":     func(http.ResponseWriter, *http.Request) {},
		"status only": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		"io.Copy from a plain reader": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("copied ", 10_000))})
		},
		"io.Copy from a WriterTo": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("copied"))
		},
		"WriteString": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.(io.StringWriter).WriteString("text") },
		"superfluous WriteHeader": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "accepted")
			w.WriteHeader(http.StatusTeapot)
		},
		"field after WriteHeader": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Early", "1")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Early", "2")
			w.Header().Set("X-Late", "1")
		},
		"type told from the body": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOCTYPE html><title>t</title>")
		},
		"type told from two writes": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOC")
			_, _ = io.WriteString(w, "TYPE html><title>t</title>")
		},
		"type explicitly absent": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		},
		"type unknown of a coded body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x-none")
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		},
		"no content": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"not modified": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"v1"`)
			w.WriteHeader(http.StatusNotModified)
		},
		"declared length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "12345")
		},
		"length that is no number": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "five")
			_, _ = io.WriteString(w, "12345")
		},
		"flush first": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		},
		"flush after the status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusAccepted)
			w.(http.Flusher).Flush()
			w.Header().Set("X-Late", "1")
			_, _ = io.WriteString(w, "data: 1\n\n")
		},
		"flush in the middle": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "rest")
			w.(http.Flusher).Flush()
		},
		"flush after a type that is too late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "data: 1\n\n")
		},
		"flush and no body": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			w.(http.Flusher).Flush()
		},
	}
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, h := range handlers {
			t.Run(name, func(t *testing.T) {
				first, _ := twice(t, serve, h)
				s := serve(h)
				if !s.Real() {
					return // httptest's recorder has its own idea of Content-Type
				}
				bare := s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, bare.Status, first.Status)
				require.Equal(t, bare.Body, first.Body)
				first.Header.Del("Idempotency-Key")
				guardtest.RequireSameHeader(t, bare.Header, first.Header)
			})
		}
	})
}

// Handlers, by what net/http makes of the length of their answers. It keeps 2 KiB back over HTTP/1.1,
// and 4 KiB over HTTP/2, and declares the length of what has ended by then.
func ofManyLengths() map[string]http.HandlerFunc {
	handlers := map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"no content":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"not modified": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
	}
	for _, length := range []int{1, 2048, 2049, 4096, 4097, 100_000} {
		handlers[strconv.Itoa(length)] = func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", length))
		}
		handlers[strconv.Itoa(length)+" in parts"] = func(w http.ResponseWriter, _ *http.Request) {
			for range length {
				_, _ = io.WriteString(w, "x")
			}
		}
	}
	return handlers
}

// First answers and replays have a length where the bare answer has one.
func TestLengthIsThatOfTheBareAnswer(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		handlers := ofManyLengths()
		for _, length := range []int{5, 10_000} {
			handlers["declared "+strconv.Itoa(length)] = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(length))
				_, _ = io.WriteString(w, strings.Repeat("x", length))
			}
		}
		for name, h := range handlers {
			for _, method := range []string{http.MethodPost, http.MethodHead} {
				c := guardtest.Call{Method: method, Key: "k"}
				bare := serve(h).Do(t, c)
				s := serve(record(h))
				for _, got := range []guardtest.Reply{s.Do(t, c), s.Do(t, c)} {
					require.Equal(t, bare.Header["Content-Length"], got.Header["Content-Length"], "%s %s", method, name)
					require.Equal(t, bare.Header["Content-Type"], got.Header["Content-Type"], "%s %s", method, name)
					require.Equal(t, bare.Body, got.Body, "%s %s", method, name)
				}
			}
		}
	})
}

// What an outer handler writes behind an answer reaches the client, and behind a replay too.
func TestOuterHandlerAddsToTheBody(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, h := range ofManyLengths() {
			signed := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					next.ServeHTTP(w, r)
					_, _ = io.WriteString(w, "signed")
				})
			}
			c := guardtest.Call{Key: "k"}
			bare := serve(signed(h)).Do(t, c)
			s := serve(signed(record(h)))
			for _, got := range []guardtest.Reply{s.Do(t, c), s.Do(t, c)} {
				require.Equal(t, bare.Body, got.Body, name)
				require.Equal(t, bare.Header["Content-Length"], got.Header["Content-Length"], name)
			}
		}
	})
}

func TestMistakesOfTheHandlerAreErrors(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
			var errs []error
			twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, err := io.WriteString(w, "body")
				errs = append(errs, err)
				_, err = w.Write([]byte("body"))
				errs = append(errs, err)
			})
			require.ErrorIs(t, errs[0], http.ErrBodyNotAllowed)
			require.ErrorIs(t, errs[1], http.ErrBodyNotAllowed)
		}

		var n int
		var err error
		first, _ := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "123")
			n, err = io.WriteString(w, "4")
		})
		require.Zero(t, n)
		require.ErrorIs(t, err, http.ErrContentLength)
		require.Equal(t, "123", first.Body)
	})
}

func TestInvalidStatusPanicsAsInNetHTTP(t *testing.T) {
	for _, status := range []int{-1, 0, 99, 1000} {
		want := guardtest.PanicOf(func() { httptest.NewRecorder().WriteHeader(status) })
		require.NotNil(t, want)
		var runs []any
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs = append(runs, guardtest.PanicOf(func() { w.WriteHeader(status) }))
			w.WriteHeader(http.StatusAccepted) // the handler recovered: its answer still counts
		})
		s := guardtest.ServeRecorder(t, record(h))
		require.Equal(t, http.StatusAccepted, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, []any{want}, runs)
	}
}

// With 204 a length promises nothing, and HTTP/1.1 servers do not mind it.
func TestLengthOfNoContentIsNoPromise(t *testing.T) {
	twice(t, func(h http.Handler) *guardtest.Server { return guardtest.ServeHTTP1(t, h) }, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusNoContent)
	})
}

func TestHeadHasTheHeaderAndNoBody(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Length", "2000000") // over the limit, but nothing is kept
			w.Header().Set("Content-Type", "text/plain")
			n, err := io.WriteString(w, "body")
			assert.Equal(t, 4, n)
			assert.NoError(t, err)
		}}
		s := serve(record(h))
		c := guardtest.Call{Method: http.MethodHead, Key: "k", NoBody: true}
		first, again := s.Do(t, c), s.Do(t, c)
		guardtest.RequireReplay(t, first, again)
		if s.Real() { // httptest's recorder keeps the body of a HEAD
			require.Empty(t, first.Body)
		}
		for _, got := range []guardtest.Reply{first, again} {
			require.Equal(t, http.StatusOK, got.Status)
			require.Equal(t, "2000000", got.Header.Get("Content-Length"))
		}
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

func TestInformationalAnswersPassAndDoNotCount(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("X-Both", "1") // in the hint and in the answer
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Header().Set("X-Final", "1")
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusProcessing) // too late
			_, _ = io.WriteString(w, "created")
		}}
		outer := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", "1")
				next.ServeHTTP(w, r)
			})
		}
		s := serve(outer(record(h)))

		var mu sync.Mutex
		var hints []textproto.MIMEHeader
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
				mu.Lock()
				defer mu.Unlock()
				assert.Equal(t, http.StatusEarlyHints, code, "informational status %d", code)
				hints = append(hints, header)
				return nil
			},
		})
		first, err := s.Try(ctx, guardtest.Call{Key: "k"})
		require.NoError(t, err)
		require.Len(t, hints, 1)
		require.Equal(t, "</style.css>; rel=preload", hints[0].Get("Link"))
		require.Equal(t, "1", hints[0].Get("X-Outer"))

		again, err := s.Try(ctx, guardtest.Call{Key: "k"})
		require.NoError(t, err)
		require.Len(t, hints, 1, "a replay has nothing to hint at")
		guardtest.RequireReplay(t, first, again)
		require.Equal(t, http.StatusCreated, first.Status)
		require.Equal(t, "created", first.Body)
		require.Empty(t, first.Header.Get("Link"))
		require.Equal(t, "1", first.Header.Get("X-Outer"))
		require.Equal(t, "1", first.Header.Get("X-Final"))
		require.Equal(t, "1", first.Header.Get("X-Both"))
	})
}

// For net/http in HTTP/1, 101 ends the header. Nothing can be made of it behind a guard.
func TestSwitchIsAnAnswer(t *testing.T) {
	for _, serve := range []func(http.Handler) *guardtest.Server{
		func(h http.Handler) *guardtest.Server { return guardtest.ServeRecorder(t, h) },
		func(h http.Handler) *guardtest.Server { return guardtest.ServeHTTP1(t, h) },
	} {
		first, _ := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSwitchingProtocols)
			w.WriteHeader(http.StatusCreated) // too late
		})
		require.Equal(t, http.StatusSwitchingProtocols, first.Status)
	}
}

func TestHijackIsRefusedAndTheRunRecorded(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		first, _ := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			for _, hijack := range []func() error{
				func() error { _, _, err := http.NewResponseController(w).Hijack(); return err },
				func() error {
					if h, ok := w.(http.Hijacker); ok {
						_, _, err := h.Hijack()
						return err
					}
					return http.ErrNotSupported
				},
			} {
				if err := hijack(); err == nil || !strings.Contains(err.Error(), http.ErrNotSupported.Error()) {
					t.Errorf("hijack: %v", err)
				}
			}
			_, _ = io.WriteString(w, "not hijacked")
		})
		require.Equal(t, "not hijacked", first.Body)
	})
}

func TestDeadlinesReachTheConnection(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			c := http.NewResponseController(w)
			for _, err := range []error{
				c.SetReadDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex(), c.SetWriteDeadline(time.Now()),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			_, _ = io.WriteString(w, "recorded")
		}}
		// On HTTP/2 the client hears of it while the run is still going on.
		s := serve(record(h))
		_, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
		require.Error(t, err, "the write deadline is over")
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, "recorded", got.Body)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// A goroutine that the handler has left behind gets errors. The answer stays what it was when
// the handler returned. The race detector watches.
func TestWriteAfterReturnIsAnError(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		stray := make(chan error, 4)
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, "answer")
			started := make(chan struct{})
			go func() {
				close(started)
				for {
					if _, err := w.Write(nil); err != nil {
						break // the handler has returned
					}
				}
				w.WriteHeader(http.StatusTeapot)
				_, err := w.Write([]byte("stray"))
				stray <- err
				_, err = io.WriteString(w, "stray")
				stray <- err
				_, err = io.Copy(w, struct{ io.Reader }{strings.NewReader("stray")})
				stray <- err
				stray <- http.NewResponseController(w).Flush()
			}()
			<-started
		}}
		s := serve(record(h))
		first := s.Do(t, guardtest.Call{Key: "k"})
		for range cap(stray) {
			require.Error(t, <-stray)
		}
		require.Equal(t, "answer", first.Body)
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
	})
}
