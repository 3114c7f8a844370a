package console

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Runs that hang are seen on the first screen, also on routes that do not hold.
func TestRunsThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		end := make(chan struct{})
		hangs := func(http.ResponseWriter, *http.Request) { <-end }
		go s.post("POST /charges", "first", hangs)
		time.Sleep(2 * time.Minute)
		go s.post("POST /payouts", "second", hangs, hold)
		time.Sleep(9 * time.Minute)
		page := s.as(viewer).get("/").Body.String()
		require.Contains(t, page, "1 run has been going on for 11m. The store is well.")
		require.Contains(t, page, "records/"+s.look("first").Record)
		require.Contains(t, page, "records/"+s.look("second").Record)
		require.Less(t, strings.Index(page, s.look("first").Record), strings.Index(page, s.look("second").Record), "the oldest comes first")
		require.NotContains(t, s.as(viewer).get("/?route=POST+/payouts").Body.String(), "records/"+s.look("first").Record)
		require.Contains(t, s.as(viewer).get("/store").Body.String(), "the oldest for 660 s")

		time.Sleep(2 * time.Minute)
		require.Contains(t, s.as(viewer).get("/").Body.String(), "2 runs have been going on for more than 10 minutes, the oldest for 13m.")
		close(end)
		synctest.Wait()
		require.Contains(t, s.as(viewer).get("/").Body.String(), "No request waits for a decision. The store is well.")
	})
}
