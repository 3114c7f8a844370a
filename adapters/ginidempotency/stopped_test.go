package ginidempotency_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/frametest"
)

// gin answers 200 for a handler that has said nothing. Of one that was told to stop, nobody knows what it has done, wherever the
// guard stands. What it has said itself is its answer.
func TestSilenceOfAHandlerThatWasStopped(t *testing.T) {
	for name, says := range map[string]func(c *gin.Context){
		"nothing": nil, "a status": func(c *gin.Context) { c.Status(http.StatusAccepted) }, "200, at once": func(c *gin.Context) { c.Writer.WriteHeaderNow() },
	} {
		for placed, serve := range map[string]func(recovery idempotency.Recovery, h gin.HandlerFunc) http.Handler{
			"the module": func(recovery idempotency.Recovery, h gin.HandlerFunc) http.Handler {
				guarded, _ := newGuard(t, idempotency.WithRecovery(recovery), idempotency.WithClientCancel(true))
				e := gin.New()
				e.POST("/charges", gin.BasicAuth(gin.Accounts{"alice": "secret"}), guarded, h)
				return e
			},
			"around the engine": func(recovery idempotency.Recovery, h gin.HandlerFunc) http.Handler {
				guard, _ := frametest.NewGuard(t, idempotency.SharedScope, idempotency.WithRecovery(recovery), idempotency.WithClientCancel(true))
				e := gin.New()
				e.POST("/charges", h)
				return guard.Handler(e)
			},
		} {
			for recovery, then := range map[idempotency.Recovery]int{idempotency.Rerun: http.StatusCreated, idempotency.Hold: http.StatusConflict} {
				var stops context.CancelFunc
				runs := 0
				guarded := serve(recovery, func(c *gin.Context) {
					if runs++; runs > 1 {
						c.Status(http.StatusCreated)
						return
					}
					stops()
					<-c.Request.Context().Done()
					if says != nil {
						says(c)
					}
				})
				url := frametest.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx, stop := context.WithCancel(r.Context())
					defer stop()
					stops = stop
					guarded.ServeHTTP(w, r.WithContext(ctx))
				})) + "/charges"
				first, second := frametest.Post(t, url), frametest.Post(t, url)
				if says != nil {
					require.True(t, second.Replayed, "%s, %s", name, placed)
					require.Equal(t, first.Status, second.Status)
					continue
				}
				require.Equal(t, map[idempotency.Recovery]int{idempotency.Rerun: http.StatusServiceUnavailable, idempotency.Hold: http.StatusConflict}[recovery], first.Status, placed)
				require.Equal(t, then, second.Status, placed)
			}
		}
	}
}
