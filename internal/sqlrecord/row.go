// Package sqlrecord is what a store in a SQL database does to a record. It decides what each call
// of [store.Store] makes of a row at one moment, and runs no SQL: a store reads a row,
// lets it change, and writes it if nobody has written it since.
package sqlrecord

import (
	"math"
	"time"

	"example.com/idempotency/store"
)

// A Moment is a time by the clock of the database, in microseconds since 1970.
type Moment int64

// Never is when a row ends that has no end of its own.
const Never Moment = math.MaxInt64

// Later returns the moment d later, or Never.
func (m Moment) Later(d time.Duration) Moment {
	return m + min(Moment(Micros(d)), Never-m)
}

// Micros returns a duration in microseconds, rounded up. [store.Forever] is so long that
// no moment is as much later as that.
func Micros(d time.Duration) int64 {
	if d == store.Forever {
		return math.MaxInt64
	}
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// Marks are what is true of a row besides its state.
type Marks int64

// What may be true of a row.
const (
	ByLapse  Marks = 1 << iota // held because the lease ended, and not by its owner
	Blank                      // nothing was done under it
	Unbound                    // released for a claim with any fingerprint, or claimed after that
	TookOver                   // claimed because another's lease had ended
	ByHand                     // settled by Resolve: its owner has lost the claim

	knownMarks = ByHand<<1 - 1
)

// Form is the version of the form of a row, and of its table. A later one stands, less one, behind the
// first byte of the marks.
const (
	Form     = 1
	formBits = 8
)

// FormOfRow is the version of a row, in SQL.
const FormOfRow = "(marks >> 8) + 1"

// A Row is a record as a table keeps it.
type Row struct {
	// Version grows with each change of the row. A store writes a row only over the version that
	// it has read.
	Version     int64
	State       store.State
	Attempt     int64
	Owner       store.Owner
	Fingerprint store.Fingerprint
	SaysHold    bool
	HoldEnds    bool
	Watched     bool
	Marks       Marks
	Lease       time.Duration
	Retention   time.Duration
	Since       Moment // when the last claim was granted, or what it said nothing of became held
	Touched     Moment // when it was last claimed, renewed, completed, released or held
	Expires     Moment
	Label       string
	Notes       []byte // see store.AppendNote
	SealedKey   []byte
	Steps       []byte // see AppendStep
	Status      int64
	Size        int64
	Answer      []byte // nil unless it was read
	// Tags are those that the claim has brought which has made or changed the row. They are in a table of their own,
	// where they replace those of the row that there were.
	Tags []store.Tag
}

// New returns the row of a claim for a key that has none.
func New(c store.Claim, now Moment) Row {
	r := Row{Version: 1, Attempt: 1, Fingerprint: c.Fingerprint, Marks: Blank, Label: c.Label, Notes: store.AppendNote(nil, c.Note), SealedKey: c.SealedKey, Watched: c.Watch, Tags: c.Tags}
	r.grant(c, now)
	return r
}

// Expired reports whether the row has ended, which is the same as if it were not there.
func (r *Row) Expired(now Moment) bool { return r.Expires <= now }

// is reports whether all of these marks are set.
func (r *Row) is(m Marks) bool { return r.Marks&m == m }

// isOf reports whether o has the row: whether it was the last to get the claim, and has not lost it
// since.
func (r *Row) isOf(o store.Owner) bool { return r.Owner == o && !r.is(ByHand) }

// seenAs returns what somebody has seen who found the row in the state.
func (r *Row) seenAs(state store.State) store.Seen {
	return store.Seen{Owner: r.Owner, Attempt: int(r.Attempt), State: state}
}

// lapsed reports whether the row is claimed and its lease has ended.
func (r *Row) lapsed(now Moment) bool {
	return r.State == store.Claimed && now-r.Touched >= Moment(Micros(r.Lease))
}

// grant makes the caller the owner of the row.
func (r *Row) grant(c store.Claim, now Moment) {
	r.Owner, r.SaysHold, r.HoldEnds = c.Owner, c.Hold, c.HoldEnds
	r.Lease, r.Retention, r.Since = c.Lease, c.Retention, now
	r.touch(store.Claimed, now, r.Unanswered(store.Claimed))
}

// touch puts the row into the state and lets it expire after kept.
func (r *Row) touch(state store.State, now Moment, kept time.Duration) {
	r.State, r.Touched, r.Expires = state, now, now.Later(kept)
	r.Marks &^= ByLapse
}

// Unanswered is how long the row is kept without an answer in that state.
func (r *Row) Unanswered(state store.State) time.Duration {
	return Kept(state, r.SaysHold, r.HoldEnds, r.Retention)
}

// Kept is how long a row is kept without an answer. What is held, or will be when its lease
// ends, has no end of its own unless its claim has asked for one.
func Kept(state store.State, hold, holdEnds bool, retention time.Duration) time.Duration {
	if !holdEnds && (state == store.Held || state == store.Claimed && hold) {
		return store.Forever
	}
	return retention
}

// See returns the row as callers see it at that moment, without its steps.
func (r *Row) See(now Moment) store.Record {
	out := store.Record{
		State:       r.stateAt(now),
		Attempt:     int(r.Attempt),
		Owner:       r.Owner,
		Fingerprint: r.Fingerprint,
		TTL:         (r.Expires - now).duration(),
		Age:         max(0, now-r.Touched).duration(),
		Notes:       r.Notes,
		Label:       r.Label,
	}
	if len(r.SealedKey) > 0 {
		out.SealedKey = r.SealedKey
	}
	if r.Expires == Never {
		out.TTL = store.Forever
	}
	switch out.State {
	case store.Claimed:
		// A clock that was set back must not make a lease longer than it was.
		out.Lease = r.Lease - out.Age
	case store.Completed:
		out.Status, out.Size, out.Answer = int(r.Status), r.Size, r.Answer
	}
	return out
}

// SeeAll is See with the steps.
func (r *Row) SeeAll(now Moment) (store.Record, error) {
	out := r.See(now)
	steps, err := steps(r.Steps)
	if len(steps) > 0 {
		out.Steps = steps
	}
	return out, err
}

func (m Moment) duration() time.Duration { return time.Duration(m) * time.Microsecond }

// stateAt returns the state that callers see. A lapsed claim that says Hold is held, although
// only the next claim that finds it notes that.
func (r *Row) stateAt(now Moment) store.State {
	if r.SaysHold && r.lapsed(now) {
		return store.Held
	}
	return r.State
}
