package idempotency

import (
	"net/http"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/response"
)

// sendReplay sends the recorded answer that was decided on, and reports it.
func (g *Guard) sendReplay(w http.ResponseWriter, d *decision) {
	if g.set.heard() {
		d.lease.observe(event.Event{
			Kind: event.Replay, Attempt: d.attempt, Status: d.answer.Status, Size: int64(len(d.answer.Body)),
			Age: d.age, Waited: d.waited, Trace: lastNote(d.notes).trace,
		})
	}
	g.set.addExpiry(&d.answer, d.goodFor)
	response.Send(w, &d.answer, d.fields)
}
