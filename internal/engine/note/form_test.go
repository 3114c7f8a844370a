package note

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/store"
)

func TestStoredFormOfANote(t *testing.T) {
	begun := Note{
		Started: time.UnixMilli(0x0102_03040506), Derivation: [4]byte{0x2a, 0x2b, 0x2c, 0x2d},
		Sums: digest.Checksums{Parts: [5]uint16{0x1112, 0x1314, 0x1516, 0x1718, 0x191a}},
	}
	trace := event.TraceContext{TraceID: [16]byte([]byte("0123456789abcdef")), SpanID: [8]byte([]byte("ghijklmn")), Flags: 1}
	with := func(n Note, trace event.TraceContext, h Hold) Note {
		n.Trace, n.Hold = trace, h
		return n
	}
	of := func(name string, n Note) formtest.Case {
		return formtest.Case{
			Name: name, Encode: func() []byte { return n.AppendTo(nil) },
			Decode: func(stored []byte) (any, error) { return Read(stored), nil }, Want: n,
			Unstored: []string{"Checksums.Partial"}, // the request that is compared says it
		}
	}
	early := func(name string, trace event.TraceContext) formtest.Case {
		n := with(begun, trace, Hold{})
		n.Derivation, n.Early = [4]byte{}, true
		c := of(name, n)
		c.Encode = nil
		return c
	}
	at := time.UnixMilli(0x0102_03040708)
	panicked, answered := Hold{At: at, Cause: event.CausePanic}, Hold{At: at, Cause: event.CauseUnknown, Status: 502}
	formtest.Check(t, "note", version,
		early("short", event.TraceContext{}), early("traced", trace),
		of("begun", begun), of("begun-traced", with(begun, trace, Hold{})),
		of("held", with(begun, event.TraceContext{}, panicked)), of("held-traced", with(begun, trace, answered)),
	)
	for cause, stored := range map[event.Cause]byte{
		event.CauseUnknown: 1, event.CausePanic: 2, event.CauseStep: 3, event.CauseAttempts: 4, event.CauseCommit: 5,
		event.CauseNotRecorded: 6, event.CauseForgotten: 7, event.CauseSaid: 8, "of a later version": 0,
	} {
		n := with(begun, event.TraceContext{}, Hold{At: at, Cause: cause})
		require.Equal(t, stored, n.AppendTo(nil)[shortLen], cause)
	}

	longest, most := with(begun, trace, answered), 64 // of a store
	require.LessOrEqual(t, len(longest.AppendTo(nil)), most)
	longest.Hold = Hold{}
	require.Len(t, longest.AppendTo(nil), MaxLen)

	stored := begun.AppendTo(nil)
	for _, other := range [][]byte{append([]byte{version + 1}, stored[1:]...), stored[:earlyLen], stored[:shortLen-1], append(stored, 0), nil} {
		require.Zero(t, Read(other), "a note that cannot be read is none")
	}
	later := with(begun, event.TraceContext{}, panicked)
	stored = later.AppendTo(nil)
	stored[shortLen] = byte(len(causes))
	require.Equal(t, Hold{At: at}, Read(stored).Hold, "a cause of a later version")
}

// The record tells why each run has left its key held, also of those that have not said so, and nothing of others.
func TestARecordTellsWhyItWasHeld(t *testing.T) {
	begun := Note{Started: time.UnixMilli(1)}
	held := begun
	held.Hold = Hold{At: time.UnixMilli(2), Cause: event.CausePanic, Status: 500}
	early := append([]byte{1}, begun.AppendTo(nil)[1:earlyLen]...)
	notesOf := func(notes ...[]byte) (all []byte) {
		for _, n := range notes {
			all = store.AppendNote(all, n)
		}
		return all
	}
	decided := func(notes []byte, from store.State, attempt int) []byte {
		return store.AppendDecision(notes, NewDecision(event.Resume, store.Seen{State: from, Attempt: attempt}, "", "").AppendTo(nil))
	}
	begunNote, heldNote := begun.AppendTo(nil), held.AppendTo(nil)
	for name, c := range map[string]struct {
		state  store.State
		notes  []byte
		why    event.Cause
		found  event.Cause
		causes []event.Cause
	}{
		"said":                  {store.Held, notesOf(begunNote, heldNote), event.CausePanic, event.CauseFound, []event.Cause{"", event.CausePanic}},
		"not said":              {store.Held, notesOf(heldNote, begunNote), event.CauseLapsed, event.CauseLapsed, []event.Cause{event.CausePanic, event.CauseLapsed}},
		"of an earlier version": {store.Held, notesOf(early), "", event.CauseFound, []event.Cause{""}},
		"not readable":          {store.Held, notesOf([]byte("?")), "", event.CauseFound, []event.Cause{""}},
		"without a note":        {store.Held, nil, "", event.CauseFound, nil},
		"answered since":        {store.Completed, notesOf(heldNote), "", event.CauseFound, []event.Cause{event.CausePanic}},
		"in flight":             {store.Claimed, notesOf(begunNote), "", event.CauseFound, []event.Cause{""}},
		"decided":               {store.Released, decided(notesOf(begunNote, begunNote), store.Held, 1), "", event.CauseFound, []event.Cause{event.CauseLapsed, ""}},
		"not decided":           {store.Released, decided(notesOf(begunNote, begunNote), store.Completed, 1), "", event.CauseFound, []event.Cause{"", ""}},
	} {
		rec := store.Record{State: c.state, Attempt: len(c.causes), Notes: c.notes}
		require.Equal(t, c.why, HeldFor(&rec).Cause, name)
		require.Equal(t, c.found, FoundFor(&rec), name)
		var causes []event.Cause
		for i, run := range Runs(&rec) {
			require.Equal(t, i+1, run.Attempt)
			require.Equal(t, run.Cause == event.CausePanic, run.Held.Equal(held.Hold.At) && run.Status == 500, name)
			causes = append(causes, run.Cause)
		}
		require.Equal(t, c.causes, causes, name)
	}
}

func TestStoredFormOfADecision(t *testing.T) {
	d := Decision{
		ID: [16]byte([]byte("0123456789abcdef")), Made: time.UnixMilli(0x0102_03040506), Outcome: event.Resume, From: store.Held, Attempt: 0x07080910,
		Actor: "ada", Reason: "keys are derived",
	}
	silent := d
	silent.Outcome, silent.Actor, silent.Reason = event.Final, "", ""
	of := func(name string, d Decision) formtest.Case {
		return formtest.Case{
			Name: name, Encode: func() []byte { return d.AppendTo(nil) },
			Decode: func(stored []byte) (any, error) { return ReadDecision(stored), nil }, Want: d,
		}
	}
	formtest.Check(t, "decision", decisionVersion, of("reasoned", d), of("silent", silent))

	// One that is of another version, or damaged, is passed over.
	stored := d.AppendTo(nil)
	newer := append([]byte{decisionVersion + 1}, stored[1:]...)
	var notes []byte
	for _, n := range [][]byte{newer, stored, stored[:29], stored[:31], silent.AppendTo(nil)} {
		notes = store.AppendDecision(notes, n)
	}
	info := event.DecisionInfo{
		ID: "30313233343536373839616263646566", Made: d.Made, Outcome: event.Resume, From: "held", Attempt: d.Attempt, Actor: "ada", Reason: "keys are derived",
	}
	second := info
	second.Outcome, second.Actor, second.Reason = event.Final, "", ""
	require.Equal(t, []event.DecisionInfo{info, second}, Decisions(&store.Record{Notes: notes}))
}

func TestStoredFormOfATombstone(t *testing.T) {
	d := Decision{
		ID: [16]byte([]byte("0123456789abcdef")), Made: time.UnixMilli(0x0102_03040506), From: store.Completed, Attempt: 2, Actor: "ada", Reason: "a test",
	}
	rec := store.Record{State: store.Completed, Attempt: 0x07080910, Age: 0x0102_03040506 * time.Millisecond, Owner: store.Owner([]byte("ghijklmnopqrstuv"))}
	want := rec
	want.Notes = store.AppendDecision(nil, d.AppendTo(nil))
	formtest.Check(t, "tombstone", tombstoneVersion, formtest.Case{
		Name: "forgotten", Encode: func() []byte { return Tombstone(&rec, &store.Record{}, d) },
		Decode: func(stored []byte) (any, error) { rec, _ := ReadTombstone(stored); return rec, nil }, Want: want,
		Unstored: []string{ // a tombstone says which record it was, and who has decided
			"Record.Answer", "Record.Blank", "Record.Fingerprint", "Record.Label", "Record.Lapsed", "Record.Lease", "Record.MayBeLost",
			"Record.Mine", "Record.SealedKey", "Record.Size", "Record.Status", "Record.Steps", "Record.TTL",
		},
	})

	stored := Tombstone(&rec, &store.Record{}, d)
	for n := range tombstoneLen {
		_, ok := ReadTombstone(stored[:n])
		require.False(t, ok)
	}
	_, ok := ReadTombstone(append([]byte{tombstoneVersion + 1}, stored[1:]...))
	require.False(t, ok)

	// The decisions about earlier records of the key come first, and those of a call that is repeated count once.
	earlier := store.Record{Owner: store.Owner{1}, Notes: store.AppendDecision(nil, []byte("earlier"))}
	rec.Notes = store.AppendDecision(store.AppendNote(nil, []byte("run")), []byte("resolved"))
	decisions := func(earlier *store.Record) (all []string) {
		rec, ok := ReadTombstone(Tombstone(&rec, earlier, d))
		require.True(t, ok)
		for one := range store.EachNote(rec.Notes) {
			require.Fail(t, "a run is left", "%s", one)
		}
		for one := range store.EachDecision(rec.Notes) {
			all = append(all, string(one))
		}
		return all
	}
	made := string(d.AppendTo(nil))
	require.Equal(t, []string{"earlier", "resolved", made}, decisions(&earlier))
	earlier.Owner = rec.Owner
	require.Equal(t, []string{"resolved", made}, decisions(&earlier))
}

// What is too long is cut where a character ends, and fits into what a store keeps.
func TestADecisionIsCut(t *testing.T) {
	const most = 512 // of a Settlement
	for n := range 1000 {
		actor, reason := strings.Repeat("ä", n), strings.Repeat("x", n%7)+strings.Repeat("€", n)
		d := NewDecision(event.Final, store.Seen{Attempt: 3, State: store.Held}, actor, reason)
		stored := d.AppendTo(nil)
		require.LessOrEqual(t, len(stored), most)
		require.Equal(t, d, ReadDecision(stored))
		for long, kept := range map[string]string{actor: d.Actor, reason: d.Reason} {
			begin, cut := strings.CutSuffix(kept, "…")
			require.True(t, utf8.ValidString(kept))
			require.True(t, strings.HasPrefix(long, begin))
			require.Equal(t, cut, kept != long)
		}
	}
	long := NewDecision(event.Final, store.Seen{}, strings.Repeat("a", maxActor+1), strings.Repeat("r", maxReason+1))
	require.Len(t, long.Actor, maxActor)
	require.Len(t, long.Reason, maxReason)
}

func TestEachDecisionHasAnID(t *testing.T) {
	seen := store.Seen{Attempt: 3, State: store.Held}
	d, again := NewDecision(event.Final, seen, "ada", "x"), NewDecision(event.Final, seen, "ada", "x")
	require.Len(t, d.Name(), 32)
	require.NotEqual(t, d.Name(), again.Name())
	require.True(t, again.Says(d))
	for _, other := range []Decision{
		NewDecision(event.Resume, seen, "ada", "x"),
		NewDecision(event.Final, seen, "bea", "x"),
		NewDecision(event.Final, seen, "ada", "y"),
		NewDecision(event.Final, store.Seen{Attempt: 4, State: store.Held}, "ada", "x"),
		{},
	} {
		require.False(t, other.Says(d))
	}
}
