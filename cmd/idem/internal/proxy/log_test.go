package proxy

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
)

// counted is a writer that knows how often it was written to.
type counted struct {
	guardtest.LockedBuffer
	writes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.LockedBuffer.Write(p)
}

// Lines of requests are written together, and late. Others are written at once, behind those that were made before.
func TestLinesOfRequestsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(counted)
		l, flush := newLogs(out)
		requests := slog.New(l.requests)
		for range 3 {
			requests.Info("request")
		}
		time.Sleep(lateBy - 1)
		synctest.Wait()
		require.Zero(t, out.writes.Load())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.EqualValues(t, 1, out.writes.Load())
		require.Equal(t, 3, strings.Count(out.String(), "\n"))

		requests.Info("fourth")
		l.Warn("fifth")
		require.EqualValues(t, 2, out.writes.Load())
		_, after, _ := strings.Cut(out.String(), "fourth")
		require.Contains(t, after, "fifth")

		requests.Info("last")
		flush()
		require.Contains(t, out.String(), "last")
		time.Sleep(2 * lateBy)
		synctest.Wait()
		require.EqualValues(t, 3, out.writes.Load(), "nothing waits, so nothing is written")

		before := out.writes.Load()
		for out.writes.Load() == before { // without the clock
			requests.Info(strings.Repeat("a", together/8))
		}
		require.Less(t, len(out.String()), together*3/2)
	})
}
