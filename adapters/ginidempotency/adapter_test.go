package ginidempotency_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/ginidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// serve serves one route with the given handlers, behind basic authentication.
func serve(t *testing.T, handlers ...gin.HandlerFunc) string {
	e := gin.New()
	e.Use(gin.BasicAuth(gin.Accounts{"alice": "secret"}))
	e.POST("/charges", handlers...)
	return frametest.ServeHTTP(t, e) + "/charges"
}

// newGuard returns the guard of a server that serve starts, as a middleware.
func newGuard(t *testing.T, opts ...idempotency.Option) (gin.HandlerFunc, func(event.Kind) []event.Event) {
	guard, events := frametest.NewGuard(t, ginidempotency.Scope(ginidempotency.User), opts...)
	return ginidempotency.Middleware(guard), events
}

// Middleware outside the guard keeps its own request and writer, and can answer for a handler that
// has panicked.
func TestOuterMiddlewareSeesTheAnswer(t *testing.T) {
	var statuses, sizes []int
	observe := func(c *gin.Context) {
		request, writer := c.Request, c.Writer
		c.Next()
		require.Same(t, request, c.Request)
		require.Same(t, writer, c.Writer)
		statuses, sizes = append(statuses, c.Writer.Status()), append(sizes, c.Writer.Size())
	}
	recovered := gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) {
		c.String(http.StatusInternalServerError, "sorry")
	})
	guarded, _ := newGuard(t)
	url := serve(t, observe, recovered, guarded, func(c *gin.Context) {
		op, _ := idempotency.FromContext(c.Request.Context())
		require.Equal(t, "alice", op.Key().Scope)
		if op.Attempt() == 1 {
			panic("bug")
		}
		c.String(http.StatusCreated, "done")
	})
	for _, want := range []frametest.Answer{
		{Status: http.StatusInternalServerError, Body: "sorry"},
		{Status: http.StatusCreated, Body: "done"},
		{Status: http.StatusCreated, Body: "done", Replayed: true},
	} {
		require.Equal(t, want, frametest.Post(t, url))
	}
	require.Equal(t, []int{500, 201, 201}, statuses)
	require.Equal(t, []int{5, 4, 4}, sizes)
}

// A handler gets the same from the middleware's writer as from gin's own.
func TestWriterBehavesAsGins(t *testing.T) {
	for name, handler := range map[string]gin.HandlerFunc{
		"nothing":      func(*gin.Context) {},
		"status alone": func(c *gin.Context) { c.Status(http.StatusNoContent) },
		"status twice": func(c *gin.Context) {
			c.Status(http.StatusAccepted)
			c.String(http.StatusCreated, "second")
		},
		"status too late": func(c *gin.Context) {
			c.String(http.StatusCreated, "first")
			c.Status(http.StatusTeapot)
		},
		"flush": func(c *gin.Context) {
			c.Status(http.StatusCreated)
			_, _ = c.Writer.WriteString("one")
			c.Writer.Flush()
			_, _ = c.Writer.WriteString("two")
		},
		"flush before the body": func(c *gin.Context) {
			c.Status(http.StatusCreated)
			c.Writer.Flush()
			_, _ = c.Writer.WriteString("one")
		},
		"error with a status": func(c *gin.Context) { _ = c.AbortWithError(http.StatusConflict, http.ErrNotSupported) },
	} {
		t.Run(name, func(t *testing.T) {
			type view struct {
				status, size int
				written      bool
			}
			var views []view
			observed := func(c *gin.Context) {
				handler(c)
				require.Nil(t, c.Writer.Pusher())
				views = append(views, view{c.Writer.Status(), c.Writer.Size(), c.Writer.Written()})
			}
			want := frametest.Post(t, serve(t, observed))
			guarded, events := newGuard(t)
			url := serve(t, guarded, observed)
			require.Equal(t, want, frametest.Post(t, url))
			require.Equal(t, views[0], views[1])
			want.Replayed = true
			require.Equal(t, want, frametest.Post(t, url))
			require.Len(t, views, 2, "runs")
			require.Empty(t, events(event.Silent))
		})
	}
}

// An error that a middleware outside answers is not lost: the client has its answer, nothing is
// recorded, and the guard says what to do.
func TestErrorAnsweredOutsideIsReported(t *testing.T) {
	guarded, events := newGuard(t, idempotency.WithRecovery(idempotency.Hold))
	url := serve(t, answerErrors, guarded, func(c *gin.Context) { _ = c.Error(http.ErrNotSupported) })
	require.Equal(t, frametest.Answer{Status: 500, Body: `{"error":"feature not supported"}`}, frametest.Post(t, url))
	require.Equal(t, http.StatusConflict, frametest.Post(t, url).Status)
	silent := events(event.Silent)
	require.Len(t, silent, 1)
	require.Equal(t, "POST /charges", silent[0].Route)
	require.ErrorContains(t, silent[0].Err, "inside the guard")
}

// The router answers 404 itself, and may know the route tomorrow.
func TestNoRouteIsNotRecorded(t *testing.T) {
	guarded, events := newGuard(t)
	e := gin.New()
	e.Use(gin.BasicAuth(gin.Accounts{"alice": "secret"}), guarded, func(c *gin.Context) { c.Header("Content-Encoding", c.GetHeader("Zip")) })
	url := frametest.ServeHTTP(t, e) + "/charges"
	_, header := frametest.PostBody(t, url, `{"amount":100}`, map[string]string{"Zip": "zip"})
	require.Empty(t, header.Get("Content-Encoding"), "gin's own answer is past the writer that compresses")
	want := frametest.Answer{Status: http.StatusNotFound, Body: "404 page not found"}
	require.Equal(t, want, frametest.Post(t, url))
	require.Equal(t, want, frametest.Post(t, url))
	require.Empty(t, events(event.Silent))

	// A handler of the program for such requests is one like any other.
	e.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "mine") })
	want = frametest.Answer{Status: http.StatusNotFound, Body: "mine"}
	require.Equal(t, want, frametest.Post(t, url))
	want.Replayed = true
	require.Equal(t, want, frametest.Post(t, url))
}

// A refusal can have the format of the program's own errors.
func TestErrorWriterFindsTheContext(t *testing.T) {
	guarded, _ := newGuard(t, idempotency.WithStrictKeys(true),
		idempotency.WithErrorWriter(func(_ http.ResponseWriter, r *http.Request, p problem.Document) {
			c, ok := ginidempotency.Context(r.Context())
			require.True(t, ok)
			c.JSON(p.Status, gin.H{"error": p.Code})
		}))
	url := serve(t, guarded, func(*gin.Context) { t.Error("the handler runs") })
	require.Equal(t, frametest.Answer{Status: 400, Body: `{"error":"key-invalid"}`}, frametest.Post(t, url))
}

// A guard that needs gin's context refuses requests that come without it, and says why.
func TestScopeNeedsTheMiddleware(t *testing.T) {
	guard, events := frametest.NewGuard(t, ginidempotency.Scope(ginidempotency.User))
	e := gin.New()
	e.POST("/charges", func(*gin.Context) { t.Error("the handler runs") })
	require.Equal(t, http.StatusForbidden, frametest.Post(t, frametest.ServeHTTP(t, guard.Handler(e))+"/charges").Status)
	refused := events(event.Refused)
	require.Len(t, refused, 1)
	require.ErrorContains(t, refused[0].Err, "ginidempotency.Middleware")

	guarded, _ := newGuard(t)
	e.POST("/open", guarded, func(*gin.Context) { t.Error("the handler runs") })
	require.Equal(t, http.StatusUnauthorized, frametest.Post(t, frametest.ServeHTTP(t, e)+"/open").Status)

	require.Panics(t, func() { ginidempotency.Middleware(nil) })
	require.Panics(t, func() { ginidempotency.Scope(nil) })
}

// gin calls the next handler when the one that comes to mind first returns, also after a refusal,
// and its answer goes past the guard. Nothing runs, with gin.Recovery and without. The log says what
// to do.
func TestNaiveMiddlewareIsRefused(t *testing.T) {
	for name, naive := range map[string]func(*idempotency.Guard) gin.HandlerFunc{
		"as it comes to mind": func(guard *idempotency.Guard) gin.HandlerFunc {
			return func(c *gin.Context) {
				guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					c.Request = r
					c.Next()
				})).ServeHTTP(c.Writer, c.Request)
			}
		},
		"with a writer of another middleware": func(guard *idempotency.Guard) gin.HandlerFunc {
			return func(c *gin.Context) {
				guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).
					ServeHTTP(&encoder{c.Writer}, c.Request)
			}
		},
		"with a writer of net/http around gin's": func(guard *idempotency.Guard) gin.HandlerFunc {
			return func(c *gin.Context) {
				guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).
					ServeHTTP(struct{ http.ResponseWriter }{c.Writer}, c.Request)
			}
		},
		"with the handler from the context": func(guard *idempotency.Guard) gin.HandlerFunc {
			type chain struct{}
			h := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				r.Context().Value(chain{}).(*gin.Context).Next()
			}))
			return func(c *gin.Context) {
				h.ServeHTTP(c.Writer, c.Request.WithContext(context.WithValue(c.Request.Context(), chain{}, c)))
				c.Abort()
			}
		},
	} {
		for _, recovers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, recovers %t", name, recovers), func(t *testing.T) {
				guard, events := frametest.NewGuard(t, frametest.HeaderScope)
				runs := 0
				e := gin.New()
				if recovers {
					e.Use(gin.RecoveryWithWriter(io.Discard))
				}
				e.POST("/charges", naive(guard), func(*gin.Context) { runs++ })
				url := frametest.ServeHTTP(t, e) + "/charges"
				for range 3 {
					got := frametest.Post(t, url)
					if !recovers && strings.Contains(name, "net/http") {
						require.Zero(t, got.Status) // nothing can flush the refusal before the connection ends
						continue
					}
					require.Equal(t, http.StatusInternalServerError, got.Status)
					require.Contains(t, strings.ToLower(got.Body), problem.Misplaced)
				}
				require.Zero(t, runs)
				refused := events(event.Refused)
				require.Len(t, refused, 3)
				require.ErrorContains(t, refused[0].Err, "ginidempotency")

				// What the guard has nothing to do with goes on.
				res, err := http.Post(url, "text/plain", nil)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, http.StatusOK, res.StatusCode)
				require.Equal(t, 1, runs)
			})
		}
	}
}

// Handlers of net/http are the last ones of their chains, and need no module.
func TestWrappedHandlersArePlacedRight(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler) gin.HandlerFunc{
		"handler":  gin.WrapH,
		"function": func(h http.Handler) gin.HandlerFunc { return gin.WrapF(h.ServeHTTP) },
		"behind a middleware of net/http": func(h http.Handler) gin.HandlerFunc {
			return gin.WrapH(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
			url := serve(t, wrap(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
			}))))
			require.Equal(t, frametest.Answer{Status: http.StatusCreated}, frametest.Post(t, url))
			require.Equal(t, frametest.Answer{Status: http.StatusCreated, Replayed: true}, frametest.Post(t, url))
		})
	}
}

// Engine.HandleContext gives the context a writer past the guard. The client has its answer, and
// retries are told that it was not kept. They are not given an empty 200.
func TestHandleContextIsReported(t *testing.T) {
	for _, target := range []string{"/open", "/protected"} {
		guarded, events := newGuard(t)
		runs := 0
		e := gin.New()
		e.Use(gin.BasicAuth(gin.Accounts{"alice": "secret"}))
		charge := func(c *gin.Context) {
			runs++
			c.String(http.StatusCreated, "charged")
		}
		e.POST("/open", charge)
		e.POST("/protected", guarded, charge)
		e.POST("/charges", guarded, func(c *gin.Context) {
			c.Request.URL.Path = target
			e.HandleContext(c)
		})
		url := frametest.ServeHTTP(t, e) + "/charges"
		require.Equal(t, frametest.Answer{Status: http.StatusCreated, Body: "charged"}, frametest.Post(t, url))
		silent := events(event.Silent)
		require.Len(t, silent, 1)
		require.ErrorContains(t, silent[0].Err, "router")
		retry := frametest.Post(t, url)
		require.Equal(t, http.StatusConflict, retry.Status)
		require.Contains(t, retry.Body, problem.ResponseNotKept)
		require.Equal(t, 1, runs)
	}
}

// A status that handlers have sent stands, whatever middleware outside makes of their errors: that is
// gin's own example. A status that they have only set can still be replaced. It is the same as without a
// guard, but that a retry does not have what was added outside.
func TestSentStatusStands(t *testing.T) {
	errorHandler := func(c *gin.Context) { // of gin's documentation
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(http.StatusInternalServerError, gin.H{"message": c.Errors.Last().Error()})
		}
	}
	errorPage := func(c *gin.Context) {
		c.Next()
		if !c.Writer.Written() {
			c.String(http.StatusTeapot, "page")
		}
	}
	for name, test := range map[string]struct {
		outside, handler gin.HandlerFunc
		retry            frametest.Answer
	}{
		"AbortWithError": {
			errorHandler, func(c *gin.Context) { _ = c.AbortWithError(http.StatusPaymentRequired, http.ErrNotSupported) },
			frametest.Answer{Status: 402, Replayed: true},
		},
		"AbortWithStatus": {
			errorPage, func(c *gin.Context) { c.AbortWithStatus(http.StatusPaymentRequired) },
			frametest.Answer{Status: 402, Replayed: true},
		},
		"an empty text": {
			errorPage, func(c *gin.Context) { c.String(http.StatusAccepted, "") },
			frametest.Answer{Status: 202, Replayed: true},
		},
		"Status": {
			errorPage, func(c *gin.Context) { c.Status(http.StatusPaymentRequired) },
			frametest.Answer{Status: 402, Replayed: true},
		},
	} {
		guarded, _ := newGuard(t)
		bare := frametest.Post(t, serve(t, test.outside, test.handler))
		url := serve(t, test.outside, guarded, test.handler)
		require.Equal(t, bare, frametest.Post(t, url), name)
		require.Equal(t, test.retry, frametest.Post(t, url), name)

		guarded, _ = newGuard(t, idempotency.WithRecovery(idempotency.Hold))
		inside := serve(t, guarded, test.outside, test.handler)
		require.Equal(t, bare, frametest.Post(t, inside), name+", inside")
		bare.Replayed = true
		require.Equal(t, bare, frametest.Post(t, inside), name+", inside")
	}
}

// What a middleware outside writes behind an empty answer reaches its client.
func TestBodyAddedOutsideIsNotCutOff(t *testing.T) {
	guarded, _ := newGuard(t)
	url := serve(t, func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 {
			c.JSON(-1, gin.H{"error": c.Errors.Last().Error()})
		}
	}, guarded, func(c *gin.Context) { _ = c.AbortWithError(http.StatusConflict, http.ErrNotSupported) })
	require.Equal(t, frametest.Answer{Status: 409, Body: `{"error":"feature not supported"}`}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 409, Replayed: true}, frametest.Post(t, url))
}

// With a guard that only looks on, handlers and middleware have the writer that they would have
// without it: it sends the header as late, and Errors are answered as outside.
func TestShadowChangesNothing(t *testing.T) {
	encode := func(c *gin.Context) { // like gin-contrib/gzip, with its header at the first byte
		c.Writer = &encoder{c.Writer}
		c.Next()
	}
	for name, handlers := range map[string][]gin.HandlerFunc{
		"encoding outside": {encode, nil, func(c *gin.Context) { c.String(http.StatusCreated, "text") }},
		"encoding inside":  {nil, encode, func(c *gin.Context) { c.String(http.StatusCreated, "text") }},
		"error outside":    {answerErrors, nil, func(c *gin.Context) { _ = c.Error(http.ErrNotSupported) }},
		"error and status": {answerErrors, nil, func(c *gin.Context) {
			_ = c.Error(http.ErrNotSupported)
			c.Status(http.StatusConflict)
		}},
		"aborted":      {answerErrors, nil, func(c *gin.Context) { _ = c.AbortWithError(http.StatusConflict, http.ErrNotSupported) }},
		"status alone": {nil, func(c *gin.Context) { c.Status(http.StatusNoContent) }},
		"nothing":      {nil, func(*gin.Context) {}},
		"flush": {nil, func(c *gin.Context) {
			_, _ = c.Writer.WriteString("a")
			c.Writer.Flush()
			_, _ = c.Writer.Write([]byte("b"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(guarded gin.HandlerFunc) (frametest.Answer, []int, string) {
				var seen []int
				var encoding string
				observe := func(c *gin.Context) {
					c.Next()
					seen = []int{c.Writer.Status(), c.Writer.Size(), len(c.Errors)}
					encoding = c.Writer.Header().Get("Content-Encoding") + c.Writer.Header().Get("Content-Type")
				}
				all := []gin.HandlerFunc{observe}
				for _, h := range handlers {
					if h == nil {
						h = guarded
					}
					all = append(all, h)
				}
				last := all[len(all)-1]
				all[len(all)-1] = func(c *gin.Context) {
					_, _ = io.ReadAll(c.Request.Body)
					last(c)
				}
				return frametest.Post(t, serve(t, all...)), seen, encoding
			}
			guarded, events := newGuard(t, idempotency.WithShadow(true))
			want, wantSeen, wantEncoding := ask(func(c *gin.Context) { c.Next() })
			got, seen, encoding := ask(guarded)
			require.Equal(t, want, got)
			require.Equal(t, wantSeen, seen)
			require.Equal(t, wantEncoding, encoding)
			e := frametest.LastShadow(t, events, 1)
			require.Equal(t, event.Run, e.Would)
			require.NoError(t, e.Err)
			if !strings.HasPrefix(name, "error") { // the others are answered outside
				require.Equal(t, want.Status, e.Status)
			}
		})
	}
}

// An encoder says at the first byte how the body is encoded.
type encoder struct{ gin.ResponseWriter }

func (e *encoder) WriteString(s string) (int, error) { return e.Write([]byte(s)) }

func (e *encoder) Write(p []byte) (int, error) {
	e.Header().Set("Content-Encoding", "upper")
	return e.ResponseWriter.Write(bytes.ToUpper(p))
}

// A guard that only looks on knows that the router's own answers are not recorded.
func TestShadowOfNoRoute(t *testing.T) {
	guarded, events := newGuard(t, idempotency.WithShadow(true))
	e := gin.New()
	e.Use(gin.BasicAuth(gin.Accounts{"alice": "secret"}), guarded, func(c *gin.Context) { _, _ = io.ReadAll(c.Request.Body) })
	url := frametest.ServeHTTP(t, e) + "/charges"
	for n := 1; n <= 2; n++ {
		require.Equal(t, http.StatusNotFound, frametest.Post(t, url).Status)
		e := frametest.LastShadow(t, events, n)
		require.Equal(t, event.Run, e.Would)
		require.NoError(t, e.Err)
	}
}

func TestSilentRoutes(t *testing.T) {
	frametest.SilentRoutes(t, func(t testing.TB, h http.Handler) string {
		e := gin.New()
		e.POST("/quiet", gin.WrapH(h))
		e.POST("/silent/:id", gin.WrapH(h))
		return frametest.ServeHTTP(t, e)
	})
}
