package report_test

import (
	"errors"
	"fmt"
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

// A client that has one key for everything leaves a line each hour, with the number of its refusals; a client that reuses a key
// now and then leaves none.
func TestOneKeyForEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		r := report.Reporter{Flood: new(report.Flood), Logger: slog.New(slog.NewTextHandler(&out, nil))}
		reuse := func(record string) {
			r.Observe(t.Context(), event.Event{Kind: event.Refused, Code: problem.KeyReused, Method: "POST", Route: "charge", Record: record, Differs: event.PartBody})
		}
		lines := func() []string {
			defer out.Reset()
			return strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
		}
		for i := range 9 {
			reuse("now-and-then")
			reuse(fmt.Sprint("once", i))
		}
		require.Empty(t, lines())
		time.Sleep(2 * time.Hour)
		reuse("now-and-then")
		require.Empty(t, lines(), "the others are long ago")

		for range 100 {
			reuse("always")
		}
		all := lines()
		require.Len(t, all, 1)
		require.Contains(t, all[0], `level=WARN msg="idempotency: one key comes with many requests" record=always method=POST route=charge code=key-reused differs=body times=10`)
		for range 179 {
			time.Sleep(time.Minute)
			reuse("always")
		}
		all = lines()
		require.Len(t, all, 2, "one each hour")
		require.Contains(t, all[0], "times=150")
		require.Contains(t, all[1], "times=60")

		for i := range 3000 { // clients choose keys: these are forgotten, and nothing else happens
			reuse(fmt.Sprint("key-", i))
		}
		r.Observe(t.Context(), event.Event{Kind: event.Refused, Code: problem.KeyReused, Record: "of Do", Err: errors.New("reused")})
		require.Empty(t, lines())
	})
}
