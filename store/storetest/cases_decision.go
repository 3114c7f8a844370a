package storetest

import (
	"fmt"
	"strings"

	"example.com/idempotency/store"
)

// The cases of what a decision leaves in its record.
var decisionCases = []testCase{
	// Who looks at a record later sees who has decided, whatever has become of it since.
	{"Decision/is kept with the record", func(e *env) {
		e.held(noted("a"))
		e.resolve(heldBy(alice, 1), noting(released, "resume by ada"))
		e.get().notes("a").decisions("resume by ada")
		e.claim(bob, noted("b"), labelled("POST /charges")).notes("a", "b")
		e.renew(bob)
		e.hold(bob, "b held")
		e.get().notes("a", "b held").decisions("resume by ada").label("POST /charges")
		e.resolve(heldBy(bob, 2), noting(answered("answer"), "final by bea"))
		e.get().notes("a", "b held").decisions("resume by ada", "final by bea")
		e.getAnswer().answer("answer").notes("a", "b held").decisions("resume by ada", "final by bea")
		e.claim(carol).answer("answer").notes("a", "b held")
	}},
	{"Decision/without a note leaves none", func(e *env) {
		e.held(noted("a"))
		e.resolve(heldBy(alice, 1), released)
		e.get().notes("a").decisions()
	}},
	// A run need not have left a note, and none looks like that of a decision.
	{"Decision/is not a note of a run", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), noting(released, "by ada"))
		e.get().notes().decisions("by ada")
		e.claim(bob, noted("b")).notes("b")
		e.get().notes("b").decisions("by ada")
	}},
	// A store does not look into a note, which may be up to 512 bytes of anything.
	{"Decision/is opaque", func(e *env) {
		var binary [512]byte
		for i := range binary {
			binary[i] = byte(i * 7)
		}
		for i, note := range []string{
			"\x00", "\xff", strings.Repeat("\xff", 127), string(binary[:128]), string(binary[:300]), string(binary[:]), "a,b:c\r\n",
		} {
			e := e.on(fmt.Sprint("decision ", i))
			e.held(noted("a"))
			e.resolve(heldBy(alice, 1), noting(released, note))
			e.claim(bob)
			e.hold(bob)
			e.resolve(heldBy(bob, 2), noting(answered("answer"), "second"))
			e.get().notes("a").decisions(note, "second")
		}
	}},
	// Somebody who decides again and again neither makes a record grow without end nor hides its runs.
	{"Decision/the last eight are kept, beside the notes of runs", func(e *env) {
		var runs, all []string
		for n := range 20 {
			owner, note := ownerOf(fmt.Sprint("owner ", n)), fmt.Sprint("note ", n)
			runs, all = append(runs, note), append(all, note+strings.Repeat("x", 25*n))
			e.claim(owner, noted(note)).mine(n + 1)
			e.hold(owner)
			e.resolve(heldBy(owner, n+1), noting(released, all[n]))
			e.get().notes(runs[max(0, len(runs)-16):]...).decisions(all[max(0, len(all)-8):]...)
		}
	}},
	// A call whose reply was lost is sent again. It is one decision.
	{"Decision/of a repeated call is kept once", func(e *env) {
		e.held()
		for range 2 {
			e.resolve(heldBy(alice, 1), noting(released, "by ada"))
			e.get().decisions("by ada")
		}
		e.claim(bob)
		e.hold(bob)
		for range 2 {
			e.resolve(heldBy(bob, 2), noting(answered("answer"), "by bea"))
			e.get().decisions("by ada", "by bea")
		}
		e.resolve(heldBy(bob, 2), answered("answer"))
		e.get().decisions("by ada", "by bea")
	}},
	// Two operators say the same. The record names the one who has decided, so the other must hear that it
	// was not she.
	{"Decision/of somebody who came later is refused", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), noting(released, "by ada"))
		for _, note := range []string{"by bea", "a", "ada", "by ada."} {
			e.refused(store.ErrChanged).resolve(heldBy(alice, 1), noting(released, note))
		}
		e.get().released(1).decisions("by ada")
		silent := e.on("decided without a note")
		silent.held()
		silent.resolve(heldBy(alice, 1), answered("answer"))
		silent.refused(store.ErrChanged).resolve(heldBy(alice, 1), noting(answered("answer"), "by bea"))
		silent.get().decisions()
	}},
	{"Decision/that is refused is not kept", func(e *env) {
		heldWithSteps(e)
		e.refused(store.ErrChanged).resolve(heldBy(alice, 2), noting(released, "by ada"))
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), noting(undoing("charge", "begun"), "by ada"))
		e.get().held(1).decisions()
	}},
	{"Decision/ends with its record", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), noting(released, "by ada"))
		e.advance(retention + margin)
		e.claim(bob).mine(1)
		e.get().decisions()
	}},
	// A caller may look at a record long after something else was decided.
	{"Decision/what was handed out does not change", func(e *env) {
		e.held(noted("a"))
		e.resolve(heldBy(alice, 1), noting(released, "by ada"))
		first := e.get()
		e.claim(bob, noted("b"))
		e.hold(bob)
		e.resolve(heldBy(bob, 2), noting(released, "by bea"))
		e.get().notes("a", "b").decisions("by ada", "by bea")
		first.notes("a").decisions("by ada")
	}},
	{"Copy/of the note of a decision", func(e *env) {
		by := noting(released, "by ada")
		e.held()
		e.resolve(heldBy(alice, 1), by)
		reuse(by.Note)
		e.get().decisions("by ada")
	}},
}

// noting returns a settlement with the note.
func noting(s store.Settlement, note string) store.Settlement {
	s.Note = []byte(note)
	return s
}
