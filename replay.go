package idempotency

import (
	"net/http"
	"sync"

	"example.com/idempotency/internal/response"
)

// sendReplay sends the recorded answer that was decided on, and reports it.
func (g *Guard) sendReplay(w http.ResponseWriter, r *http.Request, d *decision) {
	if g.set.heard() {
		d.lease.observe(Event{
			Kind: EventReplay, Attempt: d.attempt, Status: d.answer.Status, Size: int64(len(d.answer.Body)),
			Age: d.age, Waited: d.waited, Trace: lastNote(d.notes).trace,
		})
	}
	g.set.addExpiry(&d.answer, d.goodFor)
	d.answer.Send(w, r.Method)
}

// A fieldSpace is memory for the fields of an answer, from the time they are read until
// they are sent. Few answers have more.
type fieldSpace [12]response.Field

var fieldSpaces = sync.Pool{New: func() any { return new(fieldSpace) }}

func newFieldSpace() *fieldSpace { return fieldSpaces.Get().(*fieldSpace) }

// free gives the memory back after a, whose fields are in it, was sent. A nil space is none.
func (s *fieldSpace) free(a *response.Answer) {
	if s == nil {
		return
	}
	used := len(s)
	if a.Kind != 0 { // decoded: it is known how many there are
		used = min(used, len(a.Header)+len(a.Added)+len(a.Trailer))
	}
	clear(s[:used])
	fieldSpaces.Put(s)
}
