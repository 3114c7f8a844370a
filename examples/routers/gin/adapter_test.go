package main

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/examples/routers/shop"
	"example.com/idempotency/examples/routers/shop/shoptest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	m.Run()
}

func TestRoutesHaveTheirOwnTTL(t *testing.T) {
	shoptest.RequireTTLs(t, routes)
}

// naive is the adapter that comes to mind first.
func naive(guard *idempotency.Guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
	}
}

// naiveWithAbort at least does not run the handler after a replay.
func naiveWithAbort(guard *idempotency.Guard) gin.HandlerFunc {
	return func(c *gin.Context) {
		naive(guard)(c)
		c.Abort()
	}
}

// engine serves one route with the given handlers.
func engine(handlers ...gin.HandlerFunc) http.Handler {
	e := gin.New()
	e.Use(authenticate)
	e.POST("/charges", handlers...)
	return e
}

// The adapter calls c.Abort, because otherwise the handler runs after every replay.
func TestNaiveAdapterRunsTwice(t *testing.T) {
	runs := 0
	handler := engine(naive(shoptest.NewGuard(t)), func(c *gin.Context) {
		runs++
		c.JSON(http.StatusCreated, gin.H{})
	})
	require.False(t, shoptest.Post(t, handler, "/charges", "key", 100).Replayed)
	require.True(t, shoptest.Post(t, handler, "/charges", "key", 100).Replayed)
	require.Equal(t, 2, runs)
}

// The adapter replaces c.Writer, because otherwise the answer goes past the guard.
func TestNaiveAdapterRecordsNothing(t *testing.T) {
	handler := engine(naiveWithAbort(shoptest.NewGuard(t)), charge)
	require.Equal(t, http.StatusCreated, shoptest.Post(t, handler, "/charges", "key", 100).Status)
	require.Equal(t, shoptest.Answer{Status: http.StatusOK, Replayed: true},
		shoptest.Post(t, handler, "/charges", "key", 100))
}

// answerErrors is inside the guard, because outside it the error is not part of the recorded
// answer.
func TestErrorsAnsweredOutsideAreNotRecorded(t *testing.T) {
	handler := engine(answerErrors, idempotent(shoptest.NewGuard(t)), charge)
	shoptest.Post(t, handler, "/charges", "key", 0)
	require.Equal(t, shoptest.Answer{Status: http.StatusOK, Replayed: true},
		shoptest.Post(t, handler, "/charges", "key", 0))
}

// There is no gin.Recovery, because it answers 200 for a run that cut its connection.
func TestRecoveryAnswersForACutRun(t *testing.T) {
	handler := engine(gin.RecoveryWithWriter(nil), idempotent(shoptest.NewGuard(t)), charge)
	require.Equal(t, shoptest.Answer{Status: http.StatusOK}, shoptest.Post(t, handler, "/charges", "key", shop.Cut))
}

// Middleware outside the guard keeps its own request and writer, and can answer for a handler
// that panicked.
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
	handler := engine(observe, recovered, idempotent(shoptest.NewGuard(t)), func(c *gin.Context) {
		if op, _ := idempotency.FromContext(c.Request.Context()); op.Attempt() == 1 {
			panic("bug")
		}
		c.String(http.StatusCreated, "done")
	})
	for _, want := range []shoptest.Answer{
		{Status: http.StatusInternalServerError, Body: "sorry"},
		{Status: http.StatusCreated, Body: "done"},
		{Status: http.StatusCreated, Body: "done", Replayed: true},
	} {
		require.Equal(t, want, shoptest.Post(t, handler, "/charges", "key", 100))
	}
	require.Equal(t, []int{500, 201, 201}, statuses)
	require.Equal(t, []int{5, 4, 4}, sizes)
}

// A handler gets the same from the adapter's writer as from gin's own.
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
		"redirect": func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/charges/1") },
	} {
		t.Run(name, func(t *testing.T) {
			type view struct {
				status, size int
				written      bool
			}
			var views []view
			observed := func(c *gin.Context) {
				handler(c)
				views = append(views, view{c.Writer.Status(), c.Writer.Size(), c.Writer.Written()})
			}
			want := shoptest.Post(t, engine(observed), "/charges", "key", 100)
			guarded := engine(idempotent(shoptest.NewGuard(t)), observed)
			require.Equal(t, want, shoptest.Post(t, guarded, "/charges", "key", 100))
			require.Equal(t, views[0], views[1])
			want.Replayed = true
			require.Equal(t, want, shoptest.Post(t, guarded, "/charges", "key", 100))
			require.Len(t, views, 2, "runs")
		})
	}
}
