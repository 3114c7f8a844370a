package modeltest

import (
	"fmt"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// A record is what a store holds for one key, according to the contract. The zero record is
// absent. A record is comparable and has no moments: the caller, who knows the time, says
// whether it has lapsed or expired.
type record struct {
	state       store.State
	attempt     int
	fingerprint idempotency.Fingerprint
	owner       store.Owner // of the last claim that was granted
	hold        bool
	holdEnds    bool
	byHand      bool // settled by Resolve: the owner has lost the claim
	byLapse     bool // held because the lease ended, and not by its owner
	blank       bool // nothing was done under it
	unbound     bool // released for a claim with any fingerprint, or claimed after that
	lease       time.Duration
	retention   time.Duration
	kept        time.Duration // from the moment that it was last touched
	answer      string
	steps       steps
	notes       string // one byte for each, oldest first
	decisions   string // one byte for the note of each, oldest first
	label       string
	tookOver    bool // claimed because another's lease had ended
}

// maxNotes is how many notes of runs a record keeps, and maxDecisions how many of decisions.
const (
	maxNotes     = 16
	maxDecisions = 8
)

// noteOf returns the note of an owner's claims, heldNoteOf that of its holds, and labelOf the label.
func noteOf(o store.Owner) string     { return string('a' + rune(o[0]&15)) }
func heldNoteOf(o store.Owner) string { return strings.ToUpper(noteOf(o)) }
func labelOf(o store.Owner) string    { return "route " + noteOf(o) }

// stepNames are the steps that a run may have here.
var stepNames = [...]string{"a", "b"}

// steps are the values of the steps, or empty where there is no step.
type steps [len(stepNames)]string

// stepsOf returns the steps of a record in the model's form. If the model does not know
// one of them, the result differs from all that the model can have.
func stepsOf(m map[string][]byte) steps {
	var s steps
	known := 0
	for i, name := range stepNames {
		if value, ok := m[name]; ok {
			s[i] = string(value)
			known++
		}
	}
	if known != len(m) {
		s[0] = fmt.Sprintf("unknown steps: %q", m)
	}
	return s
}

// byName returns the steps in the form of a settlement.
func (s steps) byName() map[string][]byte {
	var m map[string][]byte
	for i, value := range s {
		if value == "" {
			continue
		}
		if m == nil {
			m = make(map[string][]byte)
		}
		m[stepNames[i]] = []byte(value)
	}
	return m
}

// An ending is one way in which the contract lets a call end.
type ending struct {
	next    record
	err     error
	mine    bool
	sees    bool // the call returns the record
	touched bool // lease, retention or TTL start anew
}

// endings returns the ways in which the call may end, given whether the lease of the
// record has ended. There is only one where the contract leaves no choice.
func (r record) endings(c call, lapsed bool) []ending {
	lapsed = lapsed && r.state == store.Claimed
	switch c.method {
	case claim:
		return r.claim(c.claim, lapsed)
	case get, answer:
		if r == (record{}) {
			return r.refuse(idempotency.ErrNotFound)
		}
		return []ending{{next: r, sees: true}}
	case resolve:
		return r.resolve(c, lapsed)
	case forget:
		switch {
		case r == (record{}):
			return r.unchanged()
		case c.seen != r.seen(lapsed), r.state == store.Claimed && !lapsed:
			return r.refuse(idempotency.ErrChanged)
		}
		return []ending{{}}
	}
	if !r.isOf(c.owner) {
		return r.refuse(store.ErrNotOwner)
	}
	return r.own(c)
}

func (r record) unchanged() []ending { return []ending{{next: r}} }

func (r record) refuse(err error) []ending { return []ending{{next: r, err: err}} }

// isOf reports whether the owner has the record.
func (r record) isOf(o store.Owner) bool { return r.owner == o && !r.byHand }

// seen returns what a caller sees.
func (r record) seen(lapsed bool) store.Seen {
	seen := store.Seen{Owner: r.owner, Attempt: r.attempt, State: r.state}
	if lapsed && r.hold {
		seen.State = store.Held
	}
	return seen
}

// to returns the record in another state, in which it is kept from now on.
func (r record) to(state store.State, kept time.Duration) record {
	r.state, r.kept, r.byLapse = state, kept, false
	return r
}

// unanswered is how long the record is kept if it has just been touched and has no answer.
func (r record) unanswered() time.Duration {
	if !r.holdEnds && (r.state == store.Held || r.state == store.Claimed && r.hold) {
		return never
	}
	return r.retention
}

func (r record) claim(c store.Claim, lapsed bool) []ending {
	grant := func(attempt int, blank bool) ending {
		next := record{
			blank: blank,
			state: store.Claimed, attempt: attempt, fingerprint: c.Fingerprint,
			owner: c.Owner, hold: c.Hold, holdEnds: c.HoldEnds,
			lease: c.Lease, retention: c.Retention, steps: r.steps, label: labelOf(c.Owner),
			notes: r.notes, decisions: r.decisions, tookOver: r.tookOver, unbound: blank && r.unbound,
		}
		if attempt != r.attempt {
			next.notes += noteOf(c.Owner)
			next.notes = next.notes[max(0, len(next.notes)-maxNotes):]
			next.tookOver = lapsed
		}
		next.kept = next.unanswered()
		return ending{next: next, mine: true, sees: true, touched: true}
	}
	asItIs := ending{next: r, sees: true}
	own := r.isOf(c.Owner)
	free := r.state == store.Released && !own
	switch {
	case r == (record{}):
		return []ending{grant(1, true)}
	case r.fingerprint != c.Fingerprint && (!free || !r.unbound):
		return []ending{asItIs}
	case r.state == store.Claimed && own:
		return []ending{grant(r.attempt, r.blank)}
	case lapsed && (r.hold || c.Hold):
		r.state, r.byLapse = store.Held, true
		if !r.holdEnds {
			r.kept = never
		}
		return []ending{{next: r, sees: true}}
	case free && c.Watch:
		return []ending{asItIs}
	case lapsed, free:
		return []ending{grant(r.attempt+1, r.blank && free)}
	}
	return []ending{asItIs}
}

// own is a call by the owner that only the owner may make. None of these depends on whether
// the lease has ended.
func (r record) own(c call) []ending {
	settle := func(state store.State, kept time.Duration) []ending {
		return []ending{{next: r.to(state, kept), touched: true}}
	}
	giveUp := func(state store.State) []ending {
		next := r.to(state, 0)
		next.kept = next.unanswered()
		if state == store.Released {
			next.blank = r.blank && c.release.Undone
			next.unbound = next.blank && (c.release.Unbind || c.release.Unused && r.unbound)
		}
		if state == store.Held {
			next.notes = r.notes[:len(r.notes)-1] + heldNoteOf(r.owner)
		}
		if next.blank && state == store.Released {
			if c.release.Keep > 0 {
				next.kept = min(next.kept, c.release.Keep)
			}
		}
		return []ending{{next: next, touched: true}}
	}
	running := r.state == store.Claimed
	switch c.method {
	case renew:
		if running {
			return giveUp(r.state)
		}
	case complete:
		switch r.state {
		case store.Completed:
			return r.unchanged()
		case store.Claimed, store.Held:
			r.answer = c.answer
			return settle(store.Completed, c.ttl)
		}
	case release:
		switch r.state {
		case store.Released:
			return r.unchanged()
		case store.Claimed:
			return giveUp(store.Released)
		case store.Held:
			if r.byLapse {
				return giveUp(store.Released)
			}
		}
	case hold:
		switch r.state {
		case store.Held:
			if r.byLapse {
				return giveUp(store.Held)
			}
			return r.unchanged()
		case store.Claimed:
			return giveUp(store.Held)
		}
	case saveStep:
		if running {
			r.steps[c.step], r.blank, r.unbound = c.answer, false, false
			return r.unchanged()
		}
	default:
		panic(fmt.Sprintf("modeltest: no rule for %s", c.method))
	}
	return r.refuse(store.ErrNotOwner)
}

func (r record) resolve(c call, lapsed bool) []ending {
	state, kept := store.Completed, c.ttl
	if c.answer == "" {
		state, kept = store.Released, r.retention
	}
	held := store.Seen{Owner: r.owner, Attempt: r.attempt, State: store.Held}
	gone, same := true, true
	if c.answer == "" {
		for i, value := range c.undone {
			gone = gone && (value == "" || r.steps[i] == "")
			same = same && (value == "" || r.steps[i] == value)
		}
	}
	switch {
	case r == (record{}):
		return r.refuse(idempotency.ErrNotFound)
	case c.seen != held:
		return r.refuse(idempotency.ErrChanged)
	case r.state == state && r.byHand && r.answer == c.answer && gone && strings.HasSuffix(r.decisions, c.note):
		return r.unchanged()
	case r.seen(lapsed) != held, !same:
		return r.refuse(idempotency.ErrChanged)
	}
	if c.answer == "" {
		for i, value := range c.undone {
			if value != "" {
				r.steps[i] = ""
			}
		}
	}
	r.decisions += c.note
	r.decisions = r.decisions[max(0, len(r.decisions)-maxDecisions):]
	r.answer, r.byHand, r.blank, r.unbound = c.answer, true, false, false
	return []ending{{next: r.to(state, kept), touched: true}}
}

// reply returns what the call returns if it ends like this. passed is the time since the
// record was last touched.
func (e ending) reply(c call, passed time.Duration, lapsed bool) reply {
	if e.err != nil || !e.sees {
		return reply{err: e.err}
	}
	r := e.next
	if e.touched {
		passed, lapsed = 0, false
	}
	got := reply{
		state: r.state, mine: e.mine, attempt: r.attempt, owner: r.owner, fingerprint: r.fingerprint,
		ttl: r.kept - passed, age: passed, answer: r.answer, notes: r.notes, lapsed: e.mine && r.tookOver, blank: e.mine && r.blank,
	}
	if c.method != claim {
		got.label, got.decisions = r.label, r.decisions
	}
	if r.kept == never {
		got.ttl = store.Forever
	}
	if r.state == store.Completed {
		got.status, got.size = statusOf(r.answer), int64(len(r.answer))
	}
	if c.method == get {
		got.answer = ""
	}
	switch {
	case r.state != store.Claimed:
	case lapsed && r.hold:
		got.state = store.Held
	case !lapsed:
		got.lease = r.lease - passed
	}
	if e.mine || c.method == get || c.method == answer {
		got.steps = r.steps
	}
	return got
}

// matches reports whether the call returned what it returns with this ending.
func (e ending) matches(c call, got reply, lapsed bool) bool {
	want := e.reply(c, got.age, lapsed)
	// What the contract leaves open:
	if lapsed && got.state == store.Claimed {
		got.lease = max(got.lease, 0)
	}
	if c.method == claim && c.claim.Fingerprint != want.fingerprint && got.answer == "" {
		want.answer = ""
	}
	if c.method == claim {
		got.label = ""
		want.owner = got.owner
	}
	if c.method == claim && want.attempt == 1 && got.steps == (steps{}) {
		want.steps = steps{}
	}
	return got == want
}
