package browsertest

import (
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// An engineer finds what a caller asks for by what the caller has, and erases a tenant, by keyboard alone.
func TestFindAndErase(t *testing.T) {
	s := serve(t)
	s.order("alice", "order 4711", "POST /orders", "a", created)
	s.order("alice", "order 4711", "POST /payouts", "b", breaks())
	s.order("alice", "", "POST /orders", "a2", created)
	for n := range 52 {
		s.order("bob", "", "POST /orders", "bob-"+strconv.Itoa(n), created)
	}
	b := browse(t)
	run(b, chromedp.Navigate(s.address))
	b.search("order 4711")
	found := run(b, chromedp.Text("main"))
	require.Contains(t, found, "2 records have this reference.")
	require.Contains(t, found, "POST /payouts")
	b.search("order 4712")
	require.Contains(t, run(b, chromedp.Text("main")), "its record has ended")
	b.search("bob")
	require.Contains(t, run(b, chromedp.Text(".sum")), "50 records are of this tenant, and there may be more.")
	b.press(`input[name="cursor"] + button`)
	require.Equal(t, "2 further records are of this tenant.", run(b, chromedp.Text(".sum")))
	b.press("tbody a")
	require.Contains(t, run(b, chromedp.Text(".story")), "The answer is recorded")

	// One of alice's keys is used again between the dry run and the erasing.
	b.search("alice")
	b.press("button.danger")
	require.Contains(t, run(b, chromedp.Text("form.danger")), "2 completed keys could run again")
	s.order("alice", "", "POST /orders", "c", created)
	b.write("#reason", "ticket 4711")
	b.press(`button[value="erase"]`)
	require.Contains(t, run(b, chromedp.Text(`[role="alert"]`)), "Changed meanwhile, and nothing was erased. Now it would erase 3 completed")
	b.requireReadable("erase-changed")
	b.press(`button[value="erase"]`)
	erased := run(b, chromedp.Text("main"))
	require.Contains(t, erased, "Erased 3 completed, whose retries run again, 0 without an answer, and 0 held. Left: 1 held")
	require.Contains(t, erased, "ticket 4711", "the reason was still in the form")
	_, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: "alice", Value: "a"})
	require.ErrorIs(t, err, idempotency.ErrNotFound)
	for _, complaint := range b.complaints() {
		require.Contains(t, complaint, "409", "only what has changed is an error")
	}
}
