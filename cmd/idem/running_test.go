package main

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

// later calls the program with a clock that is ahead.
func (p place) later(t *testing.T, by time.Duration, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{out: &out, errOut: &errOut, env: func(string) string { return "" }, now: func() time.Time { return time.Now().Add(by) }}
	code := a.execute(t.Context(), append(p.fit(args), p.flags...))
	return result{args, code, out.String(), errOut.String()}
}

// Runs in flight on routes that hold are listed, whatever process they are of, and how far they have come.
func TestRunning(t *testing.T) {
	t.Parallel()
	for name, make := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := make(t)
			p.idem(t, "running").exits(t, inspect.ExitOK)
			s := serve(t, p.records)
			end := hang(t, s)
			s.post("POST /payouts", "held", broken, hold)
			for format, extension := range map[string]string{asTable: ".txt", asJSON: ".json"} {
				for file, args := range map[string][]string{
					"running": {"running"}, "running-page": {"running", "--limit", "1"}, "running-route": {"running", "--route", "POST /orders"}, "running-none": {"running", "--route", "none"},
				} {
					got := p.later(t, 12*time.Minute+30*time.Second, append(args, "-o", format)...).exits(t, inspect.ExitOK)
					requireGolden(t, file+extension, stable(got.out+got.err))
				}
			}
			why := p.idem(t, "why", s.name("payout-1")).exits(t, inspect.ExitOK)
			require.Regexp(t, `Attempt 1 has been running for \d+s\. Its lease lasts for another`, why.out)
			require.Equal(t, inspect.ExitUsage, p.idem(t, "running", "--limit", "0").code)
			end()
			require.Contains(t, p.idem(t, "running").out, "Nothing runs on routes that hold.")
		})
	}
}

// hang begins two runs, one after the other, that go on until the function is called that is returned.
func hang(t *testing.T, s *service) (end func()) {
	t.Helper()
	ended, done := make(chan bool), make(chan bool)
	for _, run := range [][2]string{{"POST /payouts", "payout-1"}, {"POST /orders", "order-1"}} {
		running := make(chan bool)
		go func() {
			s.post(run[0], run[1], func(_ http.ResponseWriter, r *http.Request) {
				_, _ = idempotency.Step(r.Context(), "ledger", func(context.Context) (string, error) { return "booked", nil })
				close(running)
				<-ended
			}, hold)
			done <- true
		}()
		<-running
	}
	end = sync.OnceFunc(func() {
		close(ended)
		<-done
		<-done
	})
	t.Cleanup(end)
	return end
}
