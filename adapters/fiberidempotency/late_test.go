package fiberidempotency_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// Where fiber's handlers may run when the guard is done, nothing else tells it before the run. What is
// known of such a run is that there was one: it is not replayed as an empty 200, and does not run again.
func TestHandlersThatRunWhenTheGuardIsDone(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(*idempotency.Guard) any{
		"HTTPMiddleware, with functions between and around": func(g *idempotency.Guard) any {
			return adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					g.Handler(http.HandlerFunc(next.ServeHTTP)).ServeHTTP(struct{ http.ResponseWriter }{w}, r)
				})
			})
		},
		"by hand": func(g *idempotency.Guard) any {
			return func(c fiber.Ctx) (err error) {
				h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { err = c.Next() }))
				if failed := adaptor.HTTPHandler(h)(c); failed != nil {
					return failed
				}
				return err
			}
		},
	} {
		for _, status := range []int{http.StatusUnprocessableEntity, http.StatusInternalServerError} {
			guard, events := frametest.NewGuard(t, frametest.HeaderScope)
			runs := 0
			url := serveChain(t, nil, wrong(guard), frametest.Link(func(frametest.Context) error {
				runs++
				return fiber.NewError(status, "declined")
			}))
			first := frametest.Post(t, url)
			if strings.Contains(first.Body, string(problem.Misplaced)) {
				require.Zero(t, runs, name) // the compiler has left a trace of fiber, as it may
				continue
			}
			require.Equal(t, status, first.Status, name)
			retry := frametest.Post(t, url)
			require.Equal(t, http.StatusConflict, retry.Status, name)
			require.Contains(t, retry.Body, problem.ResponseNotKept, name)
			require.Equal(t, 1, runs, name)
			silent := events(event.Silent)
			require.Len(t, silent, 1, name)
			require.ErrorContains(t, silent[0].Err, "fiberidempotency", name)
		}
	}
}

// A handler of net/http can mean an empty 200, and say so.
func TestSilenceThatIsMeantInFibersAdaptor(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, frametest.HeaderScope, idempotency.WithSilence(idempotency.Final))
	url := serveChain(t, nil, adaptor.HTTPHandler(guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))))
	require.Equal(t, frametest.Answer{Status: 200}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 200, Replayed: true}, frametest.Post(t, url))
	require.Empty(t, events(event.Silent))
}

func TestSilentRoutes(t *testing.T) {
	t.Parallel()
	frametest.SilentRoutes(t, func(t testing.TB, h http.Handler) string {
		app := fiber.New()
		app.Post("/quiet", adaptor.HTTPHandler(h))
		app.Post("/silent/:id", adaptor.HTTPHandler(h))
		return listen(t, app)
	})
}
