package ginidempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/ginidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// Called as a function, the middleware returns before the handler runs. oapi-codegen's servers do that.
func TestMiddlewareCalledAsAFunctionIsMisplaced(t *testing.T) {
	called := func(guarded gin.HandlerFunc, h gin.HandlerFunc) gin.HandlerFunc {
		return func(c *gin.Context) {
			guarded(c)
			if c.IsAborted() {
				return
			}
			h(c)
		}
	}
	for name, before := range map[string][]gin.HandlerFunc{"alone": nil, "behind others": {func(c *gin.Context) { c.Next() }}} {
		t.Run(name, func(t *testing.T) {
			guard, events := frametest.NewGuard(t, frametest.HeaderScope)
			runs := 0
			e := gin.New()
			e.Use(before...)
			e.POST("/charges", called(ginidempotency.Middleware(guard), func(c *gin.Context) {
				runs++
				c.Status(http.StatusCreated)
			}))
			url := frametest.ServeHTTP(t, e) + "/charges"
			for range 3 {
				got := frametest.Post(t, url)
				require.Equal(t, http.StatusInternalServerError, got.Status)
				require.Contains(t, got.Body, problem.Misplaced)
			}
			require.Zero(t, runs)
			require.Len(t, events(event.Refused), 3)
			require.ErrorContains(t, events(event.Refused)[0].Err, "as a function")

			// What the guard has nothing to do with goes on.
			res, err := http.Post(url, "text/plain", nil)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusCreated, res.StatusCode)
			require.Equal(t, 1, runs)
		})
	}
}

// Where a handler is left, it does not matter who calls the middleware, nor whether the handler says anything.
func TestMiddlewareWithAHandlerBehindItIsNotMisplaced(t *testing.T) {
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	guarded := ginidempotency.Middleware(guard)
	runs := 0
	e := gin.New()
	e.POST("/charges", func(c *gin.Context) { guarded(c) }, func(*gin.Context) { runs++ })
	elsewhere, _ := frametest.NewGuard(t, frametest.HeaderScope)
	e.Use(ginidempotency.Middleware(elsewhere))
	url := frametest.ServeHTTP(t, e)
	require.Equal(t, http.StatusOK, frametest.Post(t, url+"/charges").Status)
	require.Equal(t, http.StatusOK, frametest.Post(t, url+"/charges").Status)
	require.Equal(t, 1, runs)
	require.Equal(t, http.StatusNotFound, frametest.Post(t, url+"/nowhere").Status)
	require.Empty(t, events(event.Refused))
}

func TestLostContext(t *testing.T) {
	frametest.LostContext(t, func(timeout func(http.Handler) http.Handler, guard *idempotency.Guard, charge frametest.Charge) http.Handler {
		e := gin.New()
		e.POST("/charges", func(c *gin.Context) {
			timeout(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
		}, ginidempotency.Middleware(guard), func(c *gin.Context) {
			if charge(c, func(text string) { c.String(http.StatusCreated, text) }) != nil {
				c.Status(http.StatusInternalServerError)
			}
		})
		return e
	})
}

// A handler may give its request a context that knows nothing of the run.
func TestContextThatHasLeftTheRun(t *testing.T) {
	guarded, _ := newGuard(t)
	url := serve(t, guarded, func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.Background())
		c.String(http.StatusCreated, "charged")
	})
	require.Equal(t, frametest.Answer{Status: 201, Body: "charged"}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 201, Body: "charged", Replayed: true}, frametest.Post(t, url))
}

// The status of an answer past the guard says what has become of the run, although the answer is not kept.
func TestHandleContextTellsTheOutcome(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusCreated:            "409 response-not-kept",
		http.StatusTooManyRequests:    "429 ",
		http.StatusServiceUnavailable: "409 outcome-unknown",
	} {
		guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRecovery(idempotency.Hold))
		if err != nil {
			t.Fatal(err)
		}
		e := gin.New()
		e.POST("/", ginidempotency.Middleware(guard), func(c *gin.Context) {
			c.Request.URL.Path = "/there"
			e.HandleContext(c)
		})
		e.POST("/there", func(c *gin.Context) { c.String(status, "answered") })
		for _, want := range []string{fmt.Sprint(status, " "), want} {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			e.ServeHTTP(w, r)
			require.Equal(t, want, fmt.Sprint(w.Code, " ", w.Header().Get(problem.Header)))
		}
	}
}

func TestTemporaryFiles(t *testing.T) {
	frametest.TemporaryFiles(t, func(t testing.TB, guard *idempotency.Guard, parse func(*http.Request)) string {
		e := gin.New()
		protected := ginidempotency.Middleware(guard)
		e.POST("/files", protected, protected, func(c *gin.Context) { parse(c.Request); c.Status(http.StatusCreated) })
		return frametest.ServeHTTP(t, e) + "/files"
	})
}

func TestForms(t *testing.T) {
	frametest.Forms(t, func(t testing.TB, guard *idempotency.Guard) string {
		e := gin.New()
		e.POST("/charges", ginidempotency.Middleware(guard), func(c *gin.Context) { c.String(http.StatusCreated, c.PostForm("amount")) })
		return frametest.ServeHTTP(t, e) + "/charges"
	}, func(ctx context.Context, name string) string {
		c, _ := ginidempotency.Context(ctx)
		return c.PostForm(name)
	})
}

// Generated code, such as oapi-codegen's, gives implementations the gin.Context for a context.Context.
func TestOwnContextHasTheRun(t *testing.T) {
	frametest.OwnContext(t, func(t testing.TB, guard *idempotency.Guard, charge func(context.Context) error) string {
		e := gin.New()
		e.POST("/charges", ginidempotency.Middleware(guard), func(c *gin.Context) {
			if charge(c) != nil {
				c.Status(http.StatusInternalServerError)
				return
			}
			c.Status(http.StatusCreated)
		})
		return frametest.ServeHTTP(t, e) + "/charges"
	})
}
