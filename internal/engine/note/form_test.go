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
	short := Note{
		Started: time.UnixMilli(0x0102_03040506),
		Sums:    digest.Checksums{Parts: [5]uint16{0x1112, 0x1314, 0x1516, 0x1718, 0x191a}},
	}
	traced := short
	traced.Trace = event.TraceContext{TraceID: [16]byte([]byte("0123456789abcdef")), SpanID: [8]byte([]byte("ghijklmn")), Flags: 1}
	of := func(name string, n Note) formtest.Case {
		return formtest.Case{
			Name: name, Encode: func() []byte { return n.AppendTo(nil) },
			Decode: func(stored []byte) (any, error) { return Read(stored), nil }, Want: n,
		}
	}
	long := of("traced", traced)
	long.Unstored = []string{"Checksums.Partial"} // the request that is compared says it
	formtest.Check(t, "note", version, of("short", short), long)

	newer := append([]byte{version + 1}, short.AppendTo(nil)[1:]...)
	require.Zero(t, Read(newer), "no decision depends on a note, so one that cannot be read is none")
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
