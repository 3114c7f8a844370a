package frametest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// shadow sends requests, whose handlers read their bodies, to a server whose guard only looks on.
// The answers are those of the bare server, and the guard knows what it would have done.
func (f Framework) shadow(t *testing.T, cases []Case, bareURL string) {
	t.Helper()
	guard, events := NewGuard(t, f.Scope)
	app := newApp(cases)
	url := f.Serve(t, app, guard.With(idempotency.WithShadow(true)))
	shadows := func(n int) []event.Event {
		require.Eventually(t, func() bool { return len(events(event.Shadow)) == n }, 10*time.Second, time.Millisecond)
		return events(event.Shadow)
	}
	told := 0
	for _, c := range cases {
		if !slices.Contains([]string{"bind-good", "request", "request-large", "form-multipart", "no-route"}, c.Name) {
			continue
		}
		want := send(t, bareURL, c, "tenant", "shadow-of-"+c.Name)
		for _, would := range []event.Kind{event.Run, event.Replay} {
			got := send(t, url, c, "tenant", "shadow-of-"+c.Name)
			for _, d := range compare(want, got) {
				if !everywhere(c, First, d) || d.part == "header Idempotency-Key" {
					f.report("shadow of %s: %s", c.Name, d)
				}
			}
			if c.Fate == Untouched {
				continue
			}
			told++
			all := shadows(told)
			if e := all[len(all)-1]; e.Would != would || e.Err != nil || e.Status != want.status {
				f.report("shadow of %s: would %q instead of %q, status %d, %v", c.Name, e.Would, would, e.Status, e.Err)
			}
		}
	}
}
