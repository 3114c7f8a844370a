package modeltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// A fullStore has the optional interfaces whose methods are one step each.
type fullStore interface {
	idempotency.Store
	store.StepStore
	store.Inspector
	store.Lister
}

type method string

const (
	claim    method = "Claim"
	renew    method = "Renew"
	complete method = "Complete"
	release  method = "Release"
	hold     method = "Hold"
	saveStep method = "SaveStep"
	get      method = "Get"
	answer   method = "GetAnswer"
	resolve  method = "Resolve"
	forget   method = "Forget"
)

// A call is one call of a store's method.
type call struct {
	method  method
	key     string
	owner   store.Owner
	claim   store.Claim // of Claim; perform gives it the owner's note and label
	release store.Release
	answer  string        // of Complete; of Resolve, where empty means no completion; the value of SaveStep
	ttl     time.Duration // of Complete and Resolve
	step    int           // of SaveStep
	seen    store.Seen    // of Resolve and Forget
	undone  steps         // of Resolve without a completion
	note    string        // of Resolve: a byte, or none
}

// A reply is what a call returned, with the fields of the record that the caller sees.
type reply struct {
	lost        bool  // the caller does not know whether the call took effect
	err         error // nil, or a sentinel of the contract
	state       store.State
	mine        bool
	attempt     int
	owner       store.Owner
	fingerprint idempotency.Fingerprint
	lease       time.Duration
	ttl         time.Duration
	age         time.Duration
	status      int
	size        int64
	answer      string
	steps       steps
	notes       string
	decisions   string // not of Claim, which may leave them out
	label       string
	lapsed      bool
	blank       bool
}

// perform makes the call.
func perform(ctx context.Context, s fullStore, c call) reply {
	var r store.Record
	var err error
	switch c.method {
	case claim:
		c.claim.Note, c.claim.Label = []byte(noteOf(c.owner)), labelOf(c.owner)
		r, err = s.Claim(ctx, c.key, c.claim)
	case renew:
		err = s.Renew(ctx, c.key, c.owner)
	case complete:
		err = s.Complete(ctx, c.key, c.owner, completion(c.answer, c.ttl))
	case release:
		err = s.Release(ctx, c.key, c.owner, c.release)
	case hold:
		err = s.Hold(ctx, c.key, c.owner, []byte(heldNoteOf(c.owner)))
	case saveStep:
		err = s.SaveStep(ctx, c.key, c.owner, stepNames[c.step], []byte(c.answer))
	case get:
		r, err = s.Get(ctx, c.key)
	case answer:
		r, err = s.GetAnswer(ctx, c.key)
	case resolve:
		settled := store.Settlement{Undone: c.undone.byName(), Note: []byte(c.note)}
		if c.answer != "" {
			completion := completion(c.answer, c.ttl)
			settled.Completion = &completion
		}
		err = s.Resolve(ctx, c.key, c.seen, settled)
	case forget:
		err = s.Forget(ctx, c.key, c.seen)
	}
	got := newReply(r, err)
	if c.method == claim {
		got.decisions = ""
	}
	return got
}

// completion is what a record is completed with. The status follows from the answer.
func completion(answer string, ttl time.Duration) store.Completion {
	return store.Completion{Answer: []byte(answer), Status: statusOf(answer), TTL: ttl}
}

func statusOf(answer string) int { return 200 + len(answer)%100 }

// newReply returns what the caller knows. Every error but a sentinel leaves the outcome open.
func newReply(r store.Record, err error) reply {
	if err != nil {
		for _, sentinel := range []error{
			store.ErrNotOwner, idempotency.ErrNotFound, idempotency.ErrChanged, idempotency.ErrCorrupt,
		} {
			if errors.Is(err, sentinel) {
				return reply{err: sentinel}
			}
		}
		return reply{lost: true}
	}
	return reply{
		state: r.State, mine: r.Mine, attempt: r.Attempt, owner: r.Owner, fingerprint: r.Fingerprint,
		lease: r.Lease, ttl: r.TTL, age: r.Age, status: r.Status, size: r.Size, answer: string(r.Answer), steps: stepsOf(r.Steps),
		notes: joined(store.EachNote(r.Notes)), decisions: joined(store.EachDecision(r.Notes)), label: r.Label, lapsed: r.Lapsed, blank: r.Blank,
	}
}

// joined returns notes of a record.
func joined(notes iter.Seq[[]byte]) string { return string(bytes.Join(slices.Collect(notes), nil)) }

// kind says what happened, in few enough words to count: a history must have something of
// every kind.
func (got reply) kind(c call) string {
	switch {
	case got.lost:
		return fmt.Sprintf("%s: lost", c.method)
	case got.err != nil:
		return fmt.Sprintf("%s: %s", c.method, strings.TrimPrefix(got.err.Error(), "idempotency: "))
	case c.method == claim && c.claim.Fingerprint != got.fingerprint:
		return "Claim: other fingerprint"
	case got.mine && got.attempt > 1:
		return "Claim: mine again"
	case got.mine:
		return "Claim: mine"
	case c.method == claim:
		return fmt.Sprintf("Claim: %v", got.state)
	}
	return fmt.Sprintf("%s: ok", c.method)
}

func (c call) String() string {
	s := fmt.Sprintf("%s(%x", c.method, c.owner[:2])
	switch c.method {
	case claim:
		s += fmt.Sprintf(", fingerprint %x", c.claim.Fingerprint[:1])
		if c.claim.Hold {
			s += ", hold"
		}
		if c.claim.Watch {
			s += ", watch"
		}
	case complete:
		s += fmt.Sprintf(", %.9q, %v", c.answer, c.ttl)
	case release:
		s += fmt.Sprintf(", undone=%t, %v, unbind=%t, unused=%t", c.release.Undone, c.release.Keep, c.release.Unbind, c.release.Unused)
	case saveStep:
		s += fmt.Sprintf(", %s, %q", stepNames[c.step], c.answer)
	case resolve:
		s = fmt.Sprintf("Resolve(%v, %.9q, %v, %q, %q", c.seen, c.answer, c.ttl, c.undone, c.note)
	case get, answer:
		s = string(c.method) + "("
	case forget:
		s = fmt.Sprintf("Forget(%v", c.seen)
	}
	return s + ")"
}

func (got reply) String() string {
	switch {
	case got.lost:
		return "lost"
	case got.err != nil:
		return strings.TrimPrefix(got.err.Error(), "idempotency: ")
	case got.state == 0:
		return "ok"
	}
	s := got.state.String()
	if got.mine {
		s = "mine"
	}
	return s + fmt.Sprintf(" attempt=%d fingerprint=%x lease=%v ttl=%v age=%v answer=%.9q steps=%q notes=%s decisions=%s label=%q lapsed=%t blank=%t",
		got.attempt, got.fingerprint[:1], got.lease, got.ttl, got.age, got.answer, got.steps, got.notes, got.decisions, got.label, got.lapsed, got.blank)
}

func (r record) String() string {
	if r == (record{}) {
		return "absent"
	}
	return fmt.Sprintf("%v attempt=%d owner=%x fingerprint=%x hold=%t byHand=%t blank=%t unbound=%t kept=%v answer=%.9q steps=%q",
		r.state, r.attempt, r.owner[:2], r.fingerprint[:1], r.hold, r.byHand, r.blank, r.unbound, r.kept, r.answer, r.steps)
}
