package storetest

import (
	"fmt"
	"slices"

	"example.com/idempotency/store"
)

// The cases of what a claim leaves for operators: its note, its label, its sealed key, and that it
// took over.
func noteCases() []testCase {
	return []testCase{
		{"Note/is kept with the record", noteKept},
		{"Note/is opaque", noteOpaque},
		{"Note/of each attempt is kept", noteOfEachAttempt},
		{"Note/the last sixteen are kept", noteLastSixteen},
		{"Note/of a repeated claim is kept once", noteRepeated},
		{"Note/of a claim that is not granted is not kept", noteNotGranted},
		{"Note/ends with its record", noteEnds},
		{"Note/what was handed out does not change", noteShared},
		{"Note/Get tells note and label", noteInspected},
		{"SealedKey/is kept with the record", sealedKeyKept},
		{"SealedKey/is opaque", sealedKeyOpaque},
		{"SealedKey/of a claim that is not granted is not kept", sealedKeyNotGranted},
		{"SealedKey/stays when a later claim has none", sealedKeyStays},
		{"SealedKey/ends with its record", sealedKeyEnds},
		{"Lapsed/is told to the claim that takes over", lapsedTold},
		{"Lapsed/is told again when the claim is repeated", lapsedRepeated},
		{"Lapsed/is not told of a released record", lapsedReleased},
	}
}

// noted is the edit that gives a claim a note.
func noted(note string) func(*store.Claim) {
	return func(c *store.Claim) { c.Note = []byte(note) }
}

// labelled is the edit that gives a claim a label.
func labelled(label string) func(*store.Claim) {
	return func(c *store.Claim) { c.Label = label }
}

// notes fails the case unless the record has these notes.
func (e *env) notes(r store.Record, want ...string) {
	e.t.Helper()
	var got []string
	for note := range store.EachNote(r.Notes) {
		got = append(got, string(note))
	}
	if !slices.Equal(got, want) {
		e.t.Errorf("notes: got %.40q, want %.40q", got, want)
	}
}

// The note tells where the answer of a replay comes from, and what a mismatch differs from.
func noteKept(e *env) {
	r := e.claim(key, alice, noted("first"), labelled("POST /charges"))
	e.mine(r, 1)
	e.notes(r, "first")
	e.notes(e.claim(key, bob, noted("second")), "first")
	e.notes(e.claim(key, bob, noted("second"), mismatching), "first")
	e.ok("Renew", e.store.Renew(e.ctx, key, alice))
	e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion("answer")))
	r = e.claim(key, bob, noted("second"))
	e.answer(r, "answer")
	e.notes(r, "first")
	e.notes(e.claim(key, bob, mismatching), "first")

	held := keyOf("held")
	e.mine(e.claim(held, alice, noted("held")), 1)
	e.ok("Hold", e.store.Hold(e.ctx, held, alice))
	e.notes(e.claim(held, bob), "held")

	none := keyOf("none")
	e.notes(e.claim(none, alice))
	e.notes(e.claim(none, bob, noted("of a claim that was not granted")))
}

// A store does not look into a note, which may be up to 64 bytes of anything.
func noteOpaque(e *env) {
	var binary [64]byte
	for i := range binary {
		binary[i] = byte(i * 4)
	}
	for i, note := range []string{"\x00", "\xff", string(binary[:]), "a,b:c\r\n"} {
		k := keyOf(fmt.Sprint("note ", i))
		e.notes(e.claim(k, alice, noted(note), labelled("label")), note)
		e.notes(e.claim(k, bob, noted("another"), labelled("another")), note)
	}
}

// Operators see all runs of a key, whatever has ended each.
func noteOfEachAttempt(e *env) {
	e.claimed(noted("a"))
	e.ok("Release", e.store.Release(e.ctx, key, alice, store.Release{}))
	r := e.claim(key, bob, noted("b"))
	e.mine(r, 2)
	e.notes(r, "a", "b")
	e.advance(lease + margin)
	r = e.claim(key, carol, noted("c"))
	e.mine(r, 3)
	e.notes(r, "a", "b", "c")
	e.ok("Complete", e.store.Complete(e.ctx, key, carol, completion("answer")))
	e.notes(e.claim(key, alice, noted("d")), "a", "b", "c")
}

// A client that never gives up must not make a record grow without end.
func noteLastSixteen(e *env) {
	var all []string
	for n := range 20 {
		owner, note := ownerOf(fmt.Sprint("owner ", n)), fmt.Sprint("note ", n)
		r := e.claim(key, owner, noted(note))
		e.mine(r, n+1)
		all = append(all, note)
		e.notes(r, all[max(0, len(all)-16):]...)
		e.ok("Release", e.store.Release(e.ctx, key, owner, store.Release{}))
	}
	e.notes(e.claim(key, alice, mismatching), all[4:]...)
}

// A claim whose reply was lost is sent again. It is one run.
func noteRepeated(e *env) {
	e.claimed(noted("a"))
	e.advance(lease / 2)
	e.notes(e.claim(key, alice, noted("a")), "a")
	e.ok("Release", e.store.Release(e.ctx, key, alice, store.Release{}))
	for range 2 {
		r := e.claim(key, bob, noted("b"))
		e.mine(r, 2)
		e.notes(r, "a", "b")
	}
	e.advance(lease + margin)
	e.notes(e.claim(key, bob, noted("b")), "a", "b")
}

func noteNotGranted(e *env) {
	e.claimed(noted("a"))
	e.notes(e.claim(key, bob, noted("b")), "a")
	e.advance(lease + margin)
	e.notes(e.claim(key, bob, noted("b"), mismatching), "a")
	e.notes(e.claim(key, bob, noted("b"), holding), "a")
	e.notes(e.claim(key, carol, noted("c")), "a")
}

func noteEnds(e *env) {
	e.claimed(noted("a"), labelled("a"))
	e.advance(retention + margin)
	r := e.claim(key, bob)
	e.mine(r, 1)
	e.notes(r)
	if r.Label != "" {
		e.t.Errorf("a new record has the label %q", r.Label)
	}
}

// A caller may look at a record long after it was claimed anew.
func noteShared(e *env) {
	first := e.claim(key, alice, noted("a"))
	e.ok("Release", e.store.Release(e.ctx, key, alice, store.Release{}))
	second := e.claim(key, bob, noted("b"))
	e.ok("Release", e.store.Release(e.ctx, key, bob, store.Release{}))
	e.notes(e.claim(key, carol, noted("c")), "a", "b", "c")
	e.notes(first, "a")
	e.notes(second, "a", "b")
}

// An operator sees of which route a record is, and in which traces its runs were.
func noteInspected(e *env) {
	e.inspector()
	long := fmt.Sprintf("%064d", 1)
	e.claimed(noted("a"), labelled(long))
	inspect := func(label string, notes ...string) {
		e.t.Helper()
		r := e.get()
		e.notes(r, notes...)
		if r.Label != label {
			e.t.Errorf("Get: got the label %q, want %q", r.Label, label)
		}
	}
	inspect(long, "a")
	e.claim(key, bob, noted("b"), labelled("other"), mismatching)
	inspect(long, "a")
	e.ok("Release", e.store.Release(e.ctx, key, alice, store.Release{}))
	inspect(long, "a")
	e.claim(key, bob, noted("b"), labelled("short"))
	inspect("short", "a", "b")
	e.ok("Complete", e.store.Complete(e.ctx, key, bob, completion("answer")))
	inspect("short", "a", "b")
}

// sealing is the edit that gives a claim a sealed key.
func sealing(sealed string) func(*store.Claim) {
	return func(c *store.Claim) { c.SealedKey = []byte(sealed) }
}

// sealedKey fails the case unless operators are told this sealed key.
func (e *env) sealedKey(k, want string) {
	e.t.Helper()
	i := e.inspector()
	e.lister()
	check := func(from string, r store.Record) {
		e.t.Helper()
		if string(r.SealedKey) != want || want == "" && r.SealedKey != nil {
			e.t.Errorf("%s: got the sealed key %.40q, want %.40q", from, r.SealedKey, want)
		}
	}
	r, err := i.Get(e.ctx, k)
	e.ok("Get", err)
	check("Get", r)
	r, err = i.GetAnswer(e.ctx, k)
	e.ok("GetAnswer", err)
	check("GetAnswer", r)
	for _, entry := range e.list(store.Query{}) {
		if entry.Key == k {
			check("List", entry.Record)
		}
	}
}

// A resolver is asked about a key long after its run, whatever has become of the record.
func sealedKeyKept(e *env) {
	e.claimed(sealing("sealed"), noted("a"), labelled("POST /charges"))
	e.sealedKey(key, "sealed")
	e.notes(e.get(), "a")
	e.ok("Renew", e.store.Renew(e.ctx, key, alice))
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.sealedKey(key, "sealed")
	e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion("answer")))
	e.sealedKey(key, "sealed")

	e.mine(e.claim(keyOf("lapsing"), alice, sealing("lapsing"), holding), 1)
	e.mine(e.claim(keyOf("none"), alice, noted("a"), labelled("POST /charges")), 1)
	e.advance(lease + margin)
	e.sealedKey(keyOf("lapsing"), "lapsing")
	e.sealedKey(keyOf("none"), "")
}

// A store does not look into it. It comes with a note and a label, or without.
func sealedKeyOpaque(e *env) {
	var binary [1024]byte
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	for i, sealed := range []string{"\x00", string(binary[:]), "a,b:c\r\n"} {
		for j, edits := range [][]func(*store.Claim){
			{}, {noted("a")}, {labelled("label")}, {noted("a"), labelled(fmt.Sprintf("%064d", 1))},
		} {
			k := keyOf(fmt.Sprint("sealed ", i, j))
			e.mine(e.claim(k, alice, append(edits, sealing(sealed))...), 1)
			e.sealedKey(k, sealed)
			e.advance(lease + margin)
			e.mine(e.claim(k, bob, append(edits, sealing("later"))...), 2)
			e.sealedKey(k, "later")
		}
	}
}

func sealedKeyNotGranted(e *env) {
	e.claimed(sealing("first"))
	e.claim(key, bob, sealing("second"))
	e.claim(key, bob, sealing("second"), mismatching)
	e.sealedKey(key, "first")
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.claim(key, bob, sealing("second"))
	e.sealedKey(key, "first")
}

// It is always the key of the same record. A version of the service that keeps no keys loses none.
func sealedKeyStays(e *env) {
	e.claimed(noted("a"), sealing("sealed"))
	e.ok("Release", e.store.Release(e.ctx, key, alice, store.Release{}))
	r := e.claim(key, bob, noted("b"))
	e.mine(r, 2)
	e.notes(r, "a", "b")
	e.sealedKey(key, "sealed")
	e.advance(lease + margin)
	e.mine(e.claim(key, carol), 3)
	e.sealedKey(key, "sealed")
}

func sealedKeyEnds(e *env) {
	e.claimed(sealing("sealed"))
	e.advance(retention + margin)
	e.mine(e.claim(key, bob), 1)
	e.sealedKey(key, "")
}

// lapsed fails the case unless the record says so, or says nothing of it.
func (e *env) lapsed(r store.Record, want bool) {
	e.t.Helper()
	if r.Lapsed != want {
		e.t.Errorf("Lapsed of %s: got %t", show(r), r.Lapsed)
	}
}

// Somebody should look why a run did not end.
func lapsedTold(e *env) {
	e.lapsed(e.claim(key, alice), false)
	e.lapsed(e.claim(key, bob), false)
	e.advance(lease + margin)
	e.lapsed(e.claim(key, bob, mismatching), false)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.lapsed(r, true)
	e.lapsed(e.claim(key, carol), false)
	e.ok("Complete", e.store.Complete(e.ctx, key, bob, completion("answer")))
	e.lapsed(e.claim(key, carol), false)
}

// The reply that told it may have been lost.
func lapsedRepeated(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.lapsed(e.claim(key, bob), true)
	e.lapsed(e.claim(key, bob), true)
	e.ok("Renew", e.store.Renew(e.ctx, key, bob))
	e.lapsed(e.claim(key, bob), true)
	e.advance(lease + margin)
	e.lapsed(e.claim(key, bob), true)
}

// A run that has ended is nothing to look at, and neither is an owner that claims its own key
// again.
func lapsedReleased(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.lapsed(e.claim(key, alice), false)
	e.advance(lease + margin)
	e.lapsed(e.claim(key, bob), true)
	e.ok("Release", e.store.Release(e.ctx, key, bob, store.Release{}))
	r := e.claim(key, carol)
	e.mine(r, 3)
	e.lapsed(r, false)
	e.lapsed(e.claim(key, carol), false)
}
