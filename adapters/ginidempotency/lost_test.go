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
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

func TestLostContext(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	frametest.TemporaryFiles(t, func(t testing.TB, guard *idempotency.Guard, parse func(*http.Request)) string {
		e := gin.New()
		e.POST("/files", ginidempotency.Middleware(guard), func(c *gin.Context) { parse(c.Request); c.Status(http.StatusCreated) })
		return frametest.ServeHTTP(t, e) + "/files"
	})
}

// Generated code, such as oapi-codegen's, gives implementations the gin.Context for a context.Context.
func TestOwnContextHasTheRun(t *testing.T) {
	t.Parallel()
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
