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
