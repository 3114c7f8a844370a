package browsertest

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// Five payouts are held. The bank has two of them, it can repeat the third, it has never heard of the fourth, and the fifth is
// settled by somebody else while it is looked at.
func TestFivePayouts(t *testing.T) {
	s := serve(t)
	broken := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	for n := range 5 {
		s.post("POST /transfers", "transfer-"+strconv.Itoa(n+1), broken)
	}
	b := browse(t)
	decide := func(key, decision string) string {
		run(b, chromedp.Navigate(s.address+"records/"+s.look(key).Record))
		b.write("#reason", "the bank says so")
		if decision == "final" {
			b.write("#status", "201")
			b.write("#type", "application/json")
			b.write("#body", `{"key": "`+key+`"}`)
		}
		if key == "transfer-5" {
			i := s.look(key)
			require.NoError(t, s.guard.Resolve(t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
		}
		b.press(`button[value="` + decision + `"]`)
		return run(b, chromedp.Text("main"))
	}
	require.Contains(t, decide("transfer-1", "final"), "the bank says so")
	require.Contains(t, decide("transfer-2", "final"), "the bank says so")
	require.Contains(t, decide("transfer-3", "resume"), "The next request with this key runs as attempt 2.")
	require.Contains(t, decide("transfer-4", "not-executed"), "the bank says so")
	require.Contains(t, decide("transfer-5", "final"), "changed")
	for key, state := range map[string]string{
		"transfer-1": "completed", "transfer-2": "completed", "transfer-3": "released", "transfer-4": "released", "transfer-5": "released",
	} {
		require.Equal(t, state, s.look(key).State.String(), key)
	}
	run(b, chromedp.Navigate(s.address+"records/"+s.look("transfer-2").Record+"?answer=1"))
	require.Contains(t, run(b, chromedp.Text("main")), `{"key": "transfer-2"}`)
	run(b, chromedp.Navigate(s.address))
	require.NotContains(t, run(b, chromedp.Text("main")), "POST /transfers")
	for _, complaint := range b.complaints() {
		require.Contains(t, complaint, "409", "only what has changed is an error")
	}
}

// All 130 keys of an outage are decided by one form, which the third page leads to as well.
func TestGroupOfAnOutage(t *testing.T) {
	s := serve(t)
	for n := range 130 {
		s.post("POST /transfers", "transfer-"+strconv.Itoa(n), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	}
	b := browse(t)
	run(b, chromedp.Navigate(s.address+"?route=POST+/transfers"))
	run(b, chromedp.Click(".pages a"))
	run(b, chromedp.Click(".pages a:last-child"))
	b.requireReadable("now-last-page")
	last := run(b, chromedp.Text("main"))
	run(b, chromedp.Click("article:last-of-type footer a"))
	run(b, chromedp.WaitVisible("#count"))
	b.requireReadable("several-of-many")
	shown := run(b, chromedp.Text("main"))
	b.write("#reason", "the bank was down, and has none of them")
	b.write("#count", "130")
	b.press(`button[value="not-executed"]`)
	done := run(b, chromedp.Text("main"))
	b.requireReadable("decided-many")
	require.Contains(t, last, "130 keys, held")
	require.Contains(t, last, "30 on this page")
	require.Contains(t, shown, "The oldest 100 are shown")
	require.Contains(t, done, "130 keys were decided.")
	require.Equal(t, "released", s.look("transfer-0").State.String())
	require.Equal(t, "released", s.look("transfer-129").State.String())
}
