package storetest

import "fmt"

// The cases of what a claim leaves for operators: its note, its label, its sealed key, and that it
// took over.
var noteCases = []testCase{
	// The note tells where the answer of a replay comes from, and what a mismatch differs from.
	{"Note/is kept with the record", func(e *env) {
		e.claim(alice, noted("first"), labelled("POST /charges")).mine(1).notes("first")
		e.claim(bob, noted("second")).notes("first")
		e.claim(bob, noted("second"), mismatching).notes("first")
		e.renew(alice)
		e.complete(alice, "answer")
		e.claim(bob, noted("second")).answer("answer").notes("first")
		e.claim(bob, mismatching).notes("first")

		held, none := e.on("held"), e.on("none")
		held.held(noted("held"))
		held.claim(bob).notes("held")
		none.claim(alice).notes()
		none.claim(bob, noted("of a claim that was not granted")).notes()
	}},
	// A store does not look into a note, which may be up to 64 bytes of anything.
	{"Note/is opaque", func(e *env) {
		var binary [64]byte
		for i := range binary {
			binary[i] = byte(i * 4)
		}
		for i, note := range []string{"\x00", "\xff", string(binary[:]), "a,b:c\r\n"} {
			e := e.on(fmt.Sprint("note ", i))
			e.claim(alice, noted(note), labelled("label")).notes(note)
			e.claim(bob, noted("another"), labelled("another")).notes(note)
		}
	}},
	// Operators see all runs of a key, whatever has ended each.
	{"Note/of each attempt is kept", func(e *env) {
		e.released(noted("a"))
		e.claim(bob, noted("b")).mine(2).notes("a", "b")
		e.advance(lease + margin)
		e.claim(carol, noted("c")).mine(3).notes("a", "b", "c")
		e.complete(carol, "answer")
		e.claim(alice, noted("d")).notes("a", "b", "c")
	}},
	// A client that never gives up must not make a record grow without end.
	{"Note/the last sixteen are kept", func(e *env) {
		var all []string
		for n := range 20 {
			owner, note := ownerOf(fmt.Sprint("owner ", n)), fmt.Sprint("note ", n)
			all = append(all, note)
			e.claim(owner, noted(note)).mine(n + 1).notes(all[max(0, len(all)-16):]...)
			e.release(owner)
		}
		e.claim(alice, mismatching).notes(all[4:]...)
	}},
	// A claim whose reply was lost is sent again. It is one run.
	{"Note/of a repeated claim is kept once", func(e *env) {
		e.claimed(noted("a"))
		e.advance(lease / 2)
		e.claim(alice, noted("a")).notes("a")
		e.release(alice)
		for range 2 {
			e.claim(bob, noted("b")).mine(2).notes("a", "b")
		}
		e.advance(lease + margin)
		e.claim(bob, noted("b")).notes("a", "b")
	}},
	// Why a key is held is known at the end of its run only.
	{"Note/of a hold replaces that of the claim", func(e *env) {
		var binary [64]byte
		for i := range binary {
			binary[i] = byte(i * 5)
		}
		e.released(noted("a"))
		e.claim(bob, noted("b"), labelled("POST /charges"))
		e.hold(bob, string(binary[:]))
		e.claim(carol, noted("c")).notes("a", string(binary[:]))
		e.complete(bob, "answer")
		e.claim(carol, noted("c")).notes("a", string(binary[:]))

		lapsed, none := e.on("lapsed"), e.on("none")
		lapsed.lapsed(holding, noted("died"))
		lapsed.claim(bob, noted("b")).notes("died")
		lapsed.hold(alice, "has not died")
		lapsed.claim(bob, noted("b")).notes("has not died")
		none.claimed(noted("a"))
		none.hold(alice)
		none.claim(bob, noted("b")).notes("a")
	}},
	{"Note/of a hold that is repeated is kept once", func(e *env) {
		e.claimed(noted("a"))
		e.hold(alice, "first")
		e.hold(alice, "second")
		e.claim(bob, noted("b")).notes("first")
	}},
	{"Note/of a claim that is not granted is not kept", func(e *env) {
		e.claimed(noted("a"))
		e.claim(bob, noted("b")).notes("a")
		e.advance(lease + margin)
		e.claim(bob, noted("b"), mismatching).notes("a")
		e.claim(bob, noted("b"), holding).notes("a")
		e.claim(carol, noted("c")).notes("a")
	}},
	{"Note/ends with its record", func(e *env) {
		e.claimed(noted("a"), labelled("a"))
		e.advance(retention + margin)
		e.claim(bob).mine(1).notes().label("")
	}},
	// A caller may look at a record long after it was claimed anew.
	{"Note/what was handed out does not change", func(e *env) {
		first := e.claim(alice, noted("a"))
		e.release(alice)
		second := e.claim(bob, noted("b"))
		e.release(bob)
		e.claim(carol, noted("c")).notes("a", "b", "c")
		first.notes("a")
		second.notes("a", "b")
	}},
	// An operator sees of which route a record is, and in which traces its runs were.
	{"Note/Get tells note and label", func(e *env) {
		long := fmt.Sprintf("%064d", 1)
		e.claimed(noted("a"), labelled(long))
		e.get().notes("a").label(long)
		e.claim(bob, noted("b"), labelled("other"), mismatching)
		e.get().notes("a").label(long)
		e.release(alice)
		e.get().notes("a").label(long)
		e.claim(bob, noted("b"), labelled("short"))
		e.get().notes("a", "b").label("short")
		e.complete(bob, "answer")
		e.get().notes("a", "b").label("short")
	}},
	// A resolver is asked about a key long after its run, whatever has become of the record.
	{"SealedKey/is kept with the record", func(e *env) {
		e.claimed(sealing("sealed"), noted("a"), labelled("POST /charges"))
		e.sealedKey("sealed")
		e.get().notes("a")
		e.renew(alice)
		e.hold(alice)
		e.sealedKey("sealed")
		e.complete(alice, "answer")
		e.sealedKey("sealed")

		lapsing, none := e.on("lapsing"), e.on("none")
		lapsing.claimed(sealing("lapsing"), holding)
		none.claimed(noted("a"), labelled("POST /charges"))
		e.advance(lease + margin)
		lapsing.sealedKey("lapsing")
		none.sealedKey("")
	}},
	// A store does not look into it. It comes with a note and a label, or without.
	{"SealedKey/is opaque", func(e *env) {
		var binary [1024]byte
		for i := range binary {
			binary[i] = byte(i * 7)
		}
		for i, sealed := range []string{"\x00", string(binary[:]), "a,b:c\r\n"} {
			for j, edits := range [][]edit{
				{}, {noted("a")}, {labelled("label")}, {noted("a"), labelled(fmt.Sprintf("%064d", 1))},
			} {
				e := e.on(fmt.Sprint("sealed ", i, j))
				e.claimed(append(edits, sealing(sealed))...)
				e.sealedKey(sealed)
				e.advance(lease + margin)
				e.claim(bob, append(edits, sealing("later"))...).mine(2)
				e.sealedKey("later")
			}
		}
	}},
	{"SealedKey/of a claim that is not granted is not kept", func(e *env) {
		e.claimed(sealing("first"))
		e.claim(bob, sealing("second"))
		e.claim(bob, sealing("second"), mismatching)
		e.sealedKey("first")
		e.hold(alice)
		e.claim(bob, sealing("second"))
		e.sealedKey("first")
	}},
	// It is always the key of the same record. A version of the service that keeps no keys loses none.
	{"SealedKey/stays when a later claim has none", func(e *env) {
		e.released(noted("a"), sealing("sealed"))
		e.claim(bob, noted("b")).mine(2).notes("a", "b")
		e.sealedKey("sealed")
		e.advance(lease + margin)
		e.claim(carol).mine(3)
		e.sealedKey("sealed")
	}},
	{"SealedKey/ends with its record", func(e *env) {
		e.claimed(sealing("sealed"))
		e.advance(retention + margin)
		e.claim(bob).mine(1)
		e.sealedKey("")
	}},
	// Somebody should look why a run did not end.
	{"Lapsed/is told to the claim that takes over", func(e *env) {
		e.claim(alice).lapsed(false)
		e.claim(bob).lapsed(false)
		e.advance(lease + margin)
		e.claim(bob, mismatching).lapsed(false)
		e.claim(bob).mine(2).lapsed(true)
		e.claim(carol).lapsed(false)
		e.complete(bob, "answer")
		e.claim(carol).lapsed(false)
	}},
	// The reply that told it may have been lost.
	{"Lapsed/is told again when the claim is repeated", func(e *env) {
		e.lapsed()
		e.claim(bob).lapsed(true)
		e.claim(bob).lapsed(true)
		e.renew(bob)
		e.claim(bob).lapsed(true)
		e.advance(lease + margin)
		e.claim(bob).lapsed(true)
	}},
	// A run that has ended is nothing to look at, and neither is an owner that claims its own key
	// again.
	{"Lapsed/is not told of a released record", func(e *env) {
		e.lapsed()
		e.claim(alice).lapsed(false)
		e.advance(lease + margin)
		e.claim(bob).lapsed(true)
		e.release(bob)
		e.claim(carol).mine(3).lapsed(false)
		e.claim(carol).lapsed(false)
	}},
	// The run knows whether an earlier one may have begun what it begins.
	{"Blank/is told until something may have been done", func(e *env) {
		e.claim(alice).mine(1).blank(true)
		e.claim(bob).claimed(1).blank(false)
		e.undo(alice, 1)
		e.claim(bob).mine(2).blank(true)
		e.claim(bob).mine(2).blank(true)
		e.release(bob)
		e.claim(carol).mine(3).blank(false)
	}},
}
