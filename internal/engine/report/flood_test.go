package report_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/problem"
)

// A store that is away for some seconds writes a line at once and then one each second, each with its
// number, and the numbers add up.
func TestLinesOfAnOutageAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		heard := 0
		r := report.Reporter{
			Flood: new(report.Flood), Observers: []func(context.Context, event.Event){func(context.Context, event.Event) { heard++ }},
			Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				switch a.Key {
				case slog.TimeKey, slog.LevelKey, slog.MessageKey:
					return slog.Attr{}
				}
				return a
			}})),
		}
		lines := func() []string {
			synctest.Wait()
			all := strings.Split(strings.TrimSpace(out.String()), "\n")
			out.Reset()
			return all
		}
		away := errors.New("away")
		for i := range 200 { // no two at the end of a second
			time.Sleep(19 * time.Millisecond)
			r.Observe(t.Context(), event.Event{Kind: event.StoreError, Op: "claim", Attempt: i + 1, Err: away})
			r.Observe(t.Context(), event.Event{Kind: event.Refused, Code: problem.StoreUnavailable, Method: "POST", Attempt: i + 1, Err: away})
		}
		time.Sleep(time.Minute)
		require.Equal(t, 400, heard)
		require.ElementsMatch(t, []string{
			"attempt=1 op=claim error=away", "method=POST attempt=1 code=store-unavailable error=away",
			"attempt=53 op=claim error=away times=52", "method=POST attempt=53 code=store-unavailable error=away times=52",
			"attempt=106 op=claim error=away times=53", "method=POST attempt=106 code=store-unavailable error=away times=53",
			"attempt=158 op=claim error=away times=52", "method=POST attempt=158 code=store-unavailable error=away times=52",
			"attempt=200 op=claim error=away times=42", "method=POST attempt=200 code=store-unavailable error=away times=42",
		}, lines())

		r.Observe(t.Context(), event.Event{Kind: event.StoreError, Op: "claim", Err: away})
		r.Observe(t.Context(), event.Event{Kind: event.StoreError, Op: "renew", Err: away})
		r.Observe(t.Context(), event.Event{Kind: event.Refused, Route: "charge", Method: "POST", Err: away})
		require.Len(t, lines(), 3, "after a second without them, the first of each is written at once")

		for range 3 {
			r.Observe(t.Context(), event.Event{Kind: event.Held, Record: "r"})
		}
		require.Len(t, lines(), 3, "what somebody has to look at is never summed up")
	})
}

// The line of a held key says which steps are done, and which are in doubt: that is what is settled.
func TestLineOfAHeldKeyNamesItsSteps(t *testing.T) {
	var out strings.Builder
	r := report.Reporter{Logger: slog.New(slog.NewTextHandler(&out, nil))}
	r.Log(t.Context(), event.Event{Kind: event.Held, Attempt: 1, Steps: []string{"book", "mail"}, InDoubt: []string{"wire"}})
	require.Contains(t, out.String(), "attempt=1 steps=book,mail in_doubt=wire")
}
