package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/store"
)

// A Decision is what one of them would do, or has done.
type Decision struct {
	Type     string  `json:"type"`
	Record   string  `json:"record"`
	Decision string  `json:"decision" jsonschema:"final, not-executed, resume or forget"`
	Allowed  bool    `json:"allowed"`
	DryRun   bool    `json:"dry_run" jsonschema:"nothing was changed"`
	Says     string  `json:"says" jsonschema:"what it does, or why it is refused"`
	Answer   *Answer `json:"answer,omitempty" jsonschema:"what final records, or would record"`
	Seen     string  `json:"seen" jsonschema:"what was decided about"`
	ID       string  `json:"id,omitempty" jsonschema:"that of the decision which was made, as in the event, the log and the record"`
	Actor    string  `json:"actor,omitempty"`
	Reason   string  `json:"reason,omitempty"`
}

// An Answer is what is told of the answer of a decision.
type Answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Bytes       int    `json:"bytes" jsonschema:"those of the body"`
}

// AnswerOf returns what is told of the answer of a resolution, or nil if it has none. The type that a body without one
// is recorded with is put into its header.
func AnswerOf(res *idempotency.Resolution) *Answer {
	if res.Outcome != idempotency.Final {
		return nil
	}
	if len(res.Body) > 0 && res.Header.Get("Content-Type") == "" {
		res.Header.Set("Content-Type", http.DetectContentType(res.Body))
	}
	return &Answer{res.Status, res.Header.Get("Content-Type"), len(res.Body)}
}

// String tells the answer in a line.
func (a *Answer) String() string {
	return fmt.Sprintf("status %d, %s, %d bytes", a.Status, cmp.Or(a.ContentType, "no Content-Type"), a.Bytes)
}

// Rehearse returns a context in which Of and Forget say what they would do, and change nothing.
func Rehearse(ctx context.Context) context.Context { return engine.Rehearse(ctx) }

// A Ruling asks the library what it makes of a decision about a record.
type Ruling struct {
	Guard *idempotency.Guard
	Info  idempotency.RecordInfo
	// TTL is that of the guard.
	TTL time.Duration
	// NotDone says how a decision says of a step that it has not happened.
	NotDone string
	// ID is that of the last decision that was made.
	ID string
	// Unfit says why the guard is not to record an answer for the route. It is empty if it is, as far as one knows.
	Unfit string
}

// LookInto looks at the record of k in st, the store of r.Guard, and at what may be decided about it.
func (r *Ruling) LookInto(ctx context.Context, st store.Inspector, k idempotency.Key) (err error) {
	if r.Info, err = Look(engine.Dig(ctx), r.Guard, k); err != nil || r.Info.State != store.Held {
		return err
	}
	rec, err := st.Get(ctx, r.Info.Record)
	_, hidden := r.Of(Rehearse(ctx), "resume", r.Info.Seen(), idempotency.Resolution{NotDone: r.Info.InDoubt})
	if len(rec.SealedKey) > 0 && r.Info.Key.Record != "" || unreadable(hidden) {
		r.Unfit = "the route seals what it records, and could not read this answer: decide through the service, which has the keys, by idem --server, its console or Guard.Resolve"
	}
	return err
}

func unreadable(err error) bool {
	return errors.Is(err, idempotency.ErrUnreadableHere) || errors.Is(err, idempotency.ErrCorrupt)
}

// An Order is a decision that somebody wants to be made about what was seen of a record. Word names it, and in a dry run
// it is only told what it would do.
type Order struct {
	Record, Word string
	Seen         store.Seen
	Resolution   idempotency.Resolution
	DryRun       bool
}

// Told returns what is told of the decision while it is not made.
func (o *Order) Told() Decision {
	return Decision{
		Type: "decision", Record: o.Record, Decision: o.Word, DryRun: o.DryRun, Seen: o.Seen.String(), Actor: o.Resolution.Actor, Reason: o.Resolution.Reason,
	}
}

// Decide makes a decision about the record, and returns what that has done or would do, or why it was not made.
func (r *Ruling) Decide(ctx context.Context, o Order) (Decision, error) {
	d, answer := o.Told(), AnswerOf(&o.Resolution)
	if o.DryRun {
		ctx = Rehearse(ctx)
	}
	var err error
	if o.Word == "forget" {
		d.Says, err = r.Forget(ctx, o.Seen, o.Resolution.Decision)
	} else {
		d.Says, err = r.Of(ctx, o.Word, o.Seen, o.Resolution)
	}
	if d.Allowed = err == nil; d.Allowed {
		d.ID, d.Answer = r.ID, answer
	}
	return d, r.OrChanged(ctx, o.Seen, err)
}

// NotDone is how programs say of a step that it has not happened, and so does the command line.
const NotDone = "name it with --not-done"

// Of decides about the record, and returns what that does, or why it is refused.
func (r *Ruling) Of(ctx context.Context, word string, seen store.Seen, res idempotency.Resolution) (says string, refused error) {
	res.Outcome = Outcomes[word]
	if word == "final" && r.Unfit != "" {
		return "", &Refusal{r.Unfit, nil}
	}
	err := r.Guard.Resolve(engine.TellID(ctx, &r.ID), idempotency.Key{Record: r.Info.Record}, seen, res)
	switch {
	case err == nil:
		return r.does(word, res), nil
	case errors.Is(err, idempotency.ErrStepsRecorded):
		return "", &Refusal{fmt.Sprintf("step %s has a recorded result, so it has happened; resume goes on after it", quoted(r.Info.Steps)), err}
	case errors.Is(err, idempotency.ErrUncertain):
		return "", &Refusal{fmt.Sprintf("step %s was begun at most once and may have happened. If it has not, and cannot any more, %s. "+
			"If it has, do the rest by hand, then final", quoted(r.left(res)), r.NotDone), err}
	case errors.Is(err, idempotency.ErrOtherKeys):
		return "", &Refusal{"the run had another WithDerivation than its route has now. Resume would repeat what it did under other derived keys, " +
			"which no other system recognises. Find out under those of before what has happened, or set WithDerivation back", err}
	case errors.Is(err, store.ErrChanged):
		return "", &Refusal{fmt.Sprintf("the record is %s, and only what is held can be decided", StateOf(r.Info)), err}
	case r.Info.State == store.Corrupt && seen != r.Info.Seen():
		return "", &Changed{seen, r.Info.Seen()}
	case r.Info.State == store.Corrupt:
		return "", &Refusal{"the record cannot be read, so that it can only be forgotten", err}
	case unreadable(err):
		return "", &Refusal{"a step cannot be read here, and only the service can decide, by idem --server, its console or Guard.Resolve: its route seals steps, or it is another version", err}
	}
	return "", err
}

// Forget removes the record, and returns what that does, or why it is refused.
func (r *Ruling) Forget(ctx context.Context, seen store.Seen, d idempotency.Decision) (says string, refused error) {
	err := r.Guard.Forget(engine.TellID(ctx, &r.ID), idempotency.Key{Record: r.Info.Record}, seen, d)
	switch {
	case err == nil:
		return Forgets(r.Info), nil
	case errors.Is(err, store.ErrCorrupt) && r.Info.State == store.Corrupt: // and another state was seen
		return "", &Changed{seen, r.Info.Seen()}
	case seen == r.Info.Seen() && r.Info.State == store.Claimed:
		return "", &Refusal{fmt.Sprintf("attempt %d is running, and cannot be forgotten: wait until it has ended, or its lease has", r.Info.Attempt), nil}
	}
	return "", err
}

// Forgets says what forgetting a record does.
func Forgets(i idempotency.RecordInfo) string {
	says := "The next request with this key runs as the first"
	switch {
	case i.State == store.Completed:
		says += ", and the recorded answer is lost"
	case len(i.Steps)+len(i.InDoubt)+len(i.Unread) > 0:
		says += fmt.Sprintf(", and makes %s again", quoted(slices.Concat(i.Steps, i.InDoubt, i.Unread)))
		if doubt := slices.Concat(i.InDoubt, i.Unread); len(doubt) > 0 {
			says += fmt.Sprintf(", although %s may have happened", quoted(doubt))
		}
	}
	return says + ". Right only if nothing of it has happened, or if a repetition does no harm."
}

// OrChanged returns err, or that the record has changed, and what is there now.
func (r *Ruling) OrChanged(ctx context.Context, seen store.Seen, err error) error {
	if !errors.Is(err, store.ErrChanged) {
		return err
	}
	now, lookErr := Look(ctx, r.Guard, idempotency.Key{Record: r.Info.Record})
	switch {
	case lookErr != nil:
		return lookErr // it is gone, or the store is
	case now.Seen() == seen: // it was like that when it was seen
		return &Settled{err}
	}
	return &Changed{seen, now.Seen()}
}

// A Settled error says that a record is what was seen, and that there is nothing to decide about it.
type Settled struct{ error }

// Unwrap returns why.
func (s *Settled) Unwrap() error { return s.error }

// left are the steps in doubt that a resolution says nothing about.
func (r *Ruling) left(res idempotency.Resolution) []string {
	return slices.DeleteFunc(slices.Clone(r.Info.InDoubt), func(name string) bool { return slices.Contains(res.NotDone, name) })
}

// does says what a decision does that is not refused.
func (r *Ruling) does(word string, res idempotency.Resolution) string {
	steps, doubt := quoted(r.Info.Steps), quoted(slices.Concat(r.Info.InDoubt, r.Info.Unread))
	says := fmt.Sprintf("The next request with this key runs as attempt %d", r.Info.Attempt+1)
	switch {
	case word == "final" && doubt != "":
		return fmt.Sprintf("%s: %s is left as it is, done or not, and steps that have not run never will.", r.answers(), doubt)
	case word == "final" && steps != "":
		return fmt.Sprintf("%s: %s is done, and steps that have not run never will.", r.answers(), steps)
	case word == "final":
		return r.answers() + "."
	case word == "not-executed":
		says += ", from the beginning. Right only if nothing has happened, and nothing that was sent can still arrive."
		if doubt != "" {
			says += fmt.Sprintf(" This says that %s has not happened, either.", doubt)
		}
	default:
		if says += "."; steps != "" {
			says += fmt.Sprintf(" It takes the recorded result of %s, and makes the other steps.", steps)
		}
		if len(res.NotDone) > 0 {
			says += fmt.Sprintf(" It begins %s anew: be sure that it has not happened.", quoted(res.NotDone))
		}
		says += " Right if what is repeated does no harm, as with a derived key."
	}
	return says + " Nothing runs until a client sends it. If the lost run comes back before that, its answer counts. After the retention of the route, 30 days by default, it runs as the first."
}

func (r *Ruling) answers() string {
	return fmt.Sprintf("Every retry gets the answer that you give, for %s. Nothing runs any more", Span(r.TTL))
}
