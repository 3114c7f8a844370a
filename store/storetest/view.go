package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"example.com/idempotency/store"
)

// A view is a record as one call of a case has seen it. Its methods fail the case unless the record
// is as they say, and return it.
type view struct {
	store.Record
	t testing.TB
}

// String prints the fields that most failures are about.
func (r view) String() string {
	return fmt.Sprintf("{%v mine=%t attempt=%d lease=%v ttl=%v}", r.State, r.Mine, r.Attempt, r.Lease, r.TTL)
}

// mine expects that the caller holds the claim, as the given attempt, and that the claim is
// protected from takeover.
func (r view) mine(attempt int) view {
	r.t.Helper()
	if !r.Mine || r.State != store.Claimed || r.Attempt != attempt || r.Lease <= 0 {
		r.t.Fatalf("Claim: got %v, want mine, claimed, attempt %d, with a lease", r, attempt)
	}
	return r
}

// notMine expects a state and an attempt, and that the caller does not hold the record.
func (r view) notMine(s store.State, attempt int) view {
	r.t.Helper()
	if r.Mine || r.State != s || r.Attempt != attempt {
		r.t.Fatalf("record: got %v, want not mine, %v, attempt %d", r, s, attempt)
	}
	return r
}

func (r view) claimed(attempt int) view {
	r.t.Helper()
	return r.notMine(store.Claimed, attempt)
}

func (r view) released(attempt int) view {
	r.t.Helper()
	return r.notMine(store.Released, attempt)
}

func (r view) held(attempt int) view {
	r.t.Helper()
	return r.notMine(store.Held, attempt)
}

// answer expects that the record is completed with the answer.
func (r view) answer(want string) view {
	r.t.Helper()
	if r.State != store.Completed || r.Mine {
		r.t.Fatalf("record: got %v, want completed", r)
	}
	if string(r.Answer) != want {
		r.t.Fatalf("answer: got %.40q (%d bytes), want %.40q (%d bytes)", r.Answer, len(r.Answer), want, len(want))
	}
	if r.Answer == nil {
		r.t.Fatalf("answer: got nil, want an empty one")
	}
	return r
}

// about expects that the record is completed and tells what an operator wants to know of the
// answer.
func (r view) about(size int) view {
	r.t.Helper()
	if r.State != store.Completed || r.Status != status || r.Size != int64(size) {
		r.t.Errorf("got %v with status %d and %d bytes, want completed, %d and %d", r, r.Status, r.Size, status, size)
	}
	return r
}

// answerless expects that the record comes without its answer.
func (r view) answerless() view {
	r.t.Helper()
	if r.Answer != nil {
		r.t.Errorf("got the answer, which nobody has asked for: %d bytes", len(r.Answer))
	}
	return r
}

// bound expects that the record has the fingerprint of the first claim.
func (r view) bound() view {
	r.t.Helper()
	return r.boundTo(payload)
}

func (r view) boundTo(want store.Fingerprint) view {
	r.t.Helper()
	if r.Fingerprint != want {
		r.t.Errorf("record: got the fingerprint %x, want %x", r.Fingerprint, want)
	}
	return r
}

// near fails the case unless the two durations are the same, apart from the time that the
// case itself may take.
func (r view) near(what string, got, want time.Duration) view {
	r.t.Helper()
	if (got - want).Abs() > margin {
		r.t.Errorf("%s of %v: got %v, want about %v", what, r, got, want)
	}
	return r
}

func (r view) lease(want time.Duration) view { r.t.Helper(); return r.near("Lease", r.Lease, want) }
func (r view) ttl(want time.Duration) view   { r.t.Helper(); return r.near("TTL", r.TTL, want) }
func (r view) age(want time.Duration) view   { r.t.Helper(); return r.near("Age", r.Age, want) }

// endless expects that the record has no end of its own.
func (r view) endless() view {
	r.t.Helper()
	if r.TTL != store.Forever {
		r.t.Errorf("TTL: got %v of a record that has no end", r.TTL)
	}
	return r
}

// unprotected expects that nothing protects the record from takeover. A lapsed claim may tell how
// long ago its lease has ended. In every other state there is none.
func (r view) unprotected() view {
	r.t.Helper()
	if r.Lease > 0 || r.Lease != 0 && r.State != store.Claimed {
		r.t.Errorf("Lease: got %v of a %v record", r.Lease, r.State)
	}
	return r
}

// lapsed expects that the record says, or does not say, that its claim took over from one whose
// lease had ended.
func (r view) lapsed(want bool) view {
	r.t.Helper()
	if r.Lapsed != want {
		r.t.Errorf("Lapsed of %v: got %t", r, r.Lapsed)
	}
	return r
}

// blank expects that the record says, or does not say, that nothing was done under it.
func (r view) blank(want bool) view {
	r.t.Helper()
	if r.Blank != want {
		r.t.Errorf("Blank of %v: got %t", r, r.Blank)
	}
	return r
}

// steps expects exactly these steps, given as names and values in turn.
func (r view) steps(want ...string) view {
	r.t.Helper()
	wanted := inTurn(want)
	if !maps.EqualFunc(r.Steps, wanted, bytes.Equal) {
		r.t.Fatalf("steps: got %q, want %q", r.Steps, wanted)
	}
	return r
}

// notes expects exactly these notes.
func (r view) notes(want ...string) view {
	r.t.Helper()
	if got := notesOf(r.Record); !slices.Equal(got, want) {
		r.t.Errorf("notes: got %.40q, want %.40q", got, want)
	}
	return r
}

// decisions expects exactly these notes of decisions.
func (r view) decisions(want ...string) view {
	r.t.Helper()
	var got []string
	for note := range store.EachDecision(r.Notes) {
		got = append(got, string(note))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("notes of decisions: got %.40q, want %.40q", got, want)
	}
	return r
}

// label expects that label.
func (r view) label(want string) view {
	r.t.Helper()
	if r.Label != want {
		r.t.Errorf("label: got %q, want %q", r.Label, want)
	}
	return r
}

func notesOf(r store.Record) (notes []string) {
	for note := range store.EachNote(r.Notes) {
		notes = append(notes, string(note))
	}
	return notes
}

// inTurn is a map whose names and values take turns.
func inTurn(namesAndValues []string) map[string][]byte {
	m := make(map[string][]byte)
	for i := 0; i < len(namesAndValues); i += 2 {
		m[namesAndValues[i]] = []byte(namesAndValues[i+1])
	}
	return m
}
