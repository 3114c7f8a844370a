package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/store"
)

// A Decision says who settles or forgets a key by hand, and why. Both are in the event and in the
// log, and not in the record. They may be empty.
type Decision struct {
	// Actor is who decides: a person, a ticket or a program.
	Actor string
	// Reason is how it was found out, for whoever asks later.
	Reason string
}

// A Resolution settles a key whose outcome is unknown; see [Guard.Resolve] and
// [WithResolver].
type Resolution struct {
	// Outcome is what was found out: [Final] records the answer below for all further
	// requests; [NotExecuted] lets the next request run, and begin again the steps that
	// were begun under [AtMostOnce] without a result; [Unknown] leaves it held.
	Outcome Outcome
	// Decision says who has found it out, and how. The Actor of a resolver is "resolver" unless
	// it says something else.
	Decision
	// Status, Header and Body are the answer of a Final resolution. A zero Status
	// means 200. For a key of [Do], Body is the value as its codec encodes it.
	Status int
	Header http.Header
	Body   []byte
}

// checkStore reports what the settings need and the store cannot do.
func (s *settings) checkStore(st Store) error {
	if _, ok := st.(store.Inspector); s.resolver != nil && st != nil && !ok {
		return fmt.Errorf("idempotency: WithResolver: %w", ErrNoInspector)
	}
	if _, ok := st.(store.TxStore); s.transaction && st != nil && !ok {
		return fmt.Errorf("idempotency: WithTransaction: %w", ErrCannotJoin)
	}
	return nil
}

// resolving are the keys for which a resolver is at work in this process.
type resolving struct{ keys sync.Map }

func (r *resolving) enter(key string) bool {
	_, busy := r.keys.LoadOrStore(key, true)
	return !busy
}

func (r *resolving) leave(key string) { r.keys.Delete(key) }

// resolveHeld asks the resolver about a held record, whose events observe reports. It reports
// whether the record may have settled, so that it is worth another look.
func (g *Guard) resolveHeld(ctx context.Context, a *access, observe func(event.Event)) bool {
	if !g.core.resolving.enter(a.key) {
		return false
	}
	defer g.core.resolving.leave(a.key)
	failed := func(err error) bool {
		observe(event.Event{Kind: event.StoreError, Op: "resolve", Err: err})
		return false
	}
	_, rec, err := g.get(ctx, a.id)
	switch {
	case errors.Is(err, ErrNotFound): // forgotten meanwhile
		return true
	case err != nil:
		return failed(err)
	case rec.State != store.Held:
		return true
	}
	info := g.set.recordInfo(a.id, rec)
	info.Runs = runsOf(&rec)
	res, err := g.set.resolver(ctx, info)
	if err != nil {
		return failed(err)
	}
	if res.Outcome == Unknown {
		return false
	}
	if res.Actor == "" {
		res.Actor = "resolver"
	}
	err = g.Resolve(ctx, a.id, rec.Seen(), res)
	if err == nil || errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound) { // somebody else was faster
		return true
	}
	return failed(err)
}

// Resolve settles a held key by hand, when it has been found out what became of its
// run. seen is what was seen of the key, usually by [Guard.Lookup], when that was found out;
// see [RecordInfo.Seen]. The guard must have the sealer, and should have the TTL, of the
// key's route. Key{Record: name} settles a record whose key is not known.
//
// It is one step of the store: a request that arrives meanwhile meets either the held key or
// the settled one, and never a key that is being settled. So a client that retries without a
// pause keeps nobody from resolving. Repeating a successful call is success, unless somebody has
// claimed the key since, which is [ErrChanged]. Each success is reported as [event.Resolved].
//
// Errors: [ErrNotFound]; [ErrChanged] when the key is not held any more, or by another
// run, and nothing is changed: look at it again; [ErrNoInspector]; [ErrCorrupt] when
// NotExecuted meets a step that cannot be read, and nothing is changed; those of the store;
// and others for a resolution that says neither Final nor NotExecuted, or whose answer could
// not be one of the route's.
func (g *Guard) Resolve(ctx context.Context, k Key, seen store.Seen, res Resolution) error {
	if res.Outcome != Final && res.Outcome != NotExecuted {
		return fmt.Errorf("idempotency: Resolve: outcome %v settles nothing; give Final or NotExecuted", res.Outcome)
	}
	inspector, rec, err := g.get(ctx, k)
	if err != nil {
		return err
	}
	var s store.Settlement
	if res.Outcome == Final {
		s.Completion, err = g.resolvedCompletion(ctx, res, k, rec)
	} else {
		s.Undone, err = g.begunSteps(k, rec)
	}
	if err != nil {
		return err
	}
	timeout := storeTimeout
	if s.Completion != nil {
		timeout += sizeTime(int64(len(s.Completion.Answer)))
	}
	_, err = bounded(ctx, g.core, timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Resolve(ctx, k.storeKey(), seen, s)
	})
	if err == nil {
		k = g.identify(ctx, k, rec)
		g.reportDecision(ctx, k, res.Decision, event.Event{
			Kind: event.Resolved, OperationID: g.set.operationID(k, rec.Fingerprint), Route: rec.Label,
			Attempt: seen.Attempt, Outcome: res.Outcome, Age: rec.Age, Trace: lastNote(rec.Notes).trace,
		})
	}
	return err
}

// reportDecision reports what was decided by hand.
func (g *Guard) reportDecision(ctx context.Context, k Key, d Decision, e event.Event) {
	a := access{core: g.core, set: &g.set, id: k, key: k.storeKey(), client: ctx, route: g.set.route}
	e.Actor, e.Reason = d.Actor, d.Reason
	a.observe(e)
}

// begunSteps are the steps that have a mark and no result: the marks would hold the key
// again. A mark that cannot be read could not be told from a result.
func (g *Guard) begunSteps(k Key, rec store.Record) (map[string][]byte, error) {
	var begun map[string][]byte
	for name, stored := range rec.Steps {
		value, err := g.set.unsealStep(stored, k.storeKey(), rec.Fingerprint, name)
		if err != nil {
			return nil, err
		}
		if value[0] != stepStarted {
			continue
		}
		if begun == nil {
			begun = make(map[string][]byte)
		}
		begun[name] = stored
	}
	return begun, nil
}

// resolvedCompletion is what a Final resolution records.
func (g *Guard) resolvedCompletion(ctx context.Context, res Resolution, k Key, rec store.Record) (*store.Completion, error) {
	a, err := g.resolvedAnswer(res, rec.Fingerprint)
	if err != nil {
		return nil, err
	}
	sealed, err := g.sealAgain(ctx, a, k, rec)
	if err != nil {
		return nil, err
	}
	return &store.Completion{Answer: sealed, Status: toldStatus(a, rec.Fingerprint), TTL: g.set.ttl}, nil
}

// sealAgain returns the stored form of an answer, and the one that is recorded already if
// it is that of the same answer: a store tells a call that is repeated by its bytes, and
// a sealer makes others each time.
func (g *Guard) sealAgain(ctx context.Context, a *answer.Answer, k Key, rec store.Record) ([]byte, error) {
	key := k.storeKey()
	if rec.State == store.Completed && g.set.sealer != nil {
		_, rec, err := g.read(ctx, k, storeTimeout+sizeTime(rec.Size), store.Inspector.GetAnswer)
		if err != nil {
			return nil, err
		}
		recorded, err := g.set.unseal(rec.Answer, key, rec.Fingerprint, nil)
		if err == nil && bytes.Equal(recorded.Encode(key, rec.Fingerprint), a.Encode(key, rec.Fingerprint)) {
			return rec.Answer, nil
		}
	}
	return g.set.seal(a, key, rec.Fingerprint)
}

// resolvedAnswer is the answer of a Final resolution for a record, which may be one of Do.
func (g *Guard) resolvedAnswer(res Resolution, fp Fingerprint) (*answer.Answer, error) {
	a := &answer.Answer{Kind: answer.KindKept, Status: res.Status, Body: res.Body}
	if fp[0] == digest.VersionJob {
		a.Kind = answer.KindValue
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if a.Status < 200 || a.Status > 999 {
		return nil, fmt.Errorf("idempotency: Resolve: %d is not the status of an answer", res.Status)
	}
	if len(a.Body) > 0 && !response.BodyAllowed(a.Status) {
		return nil, fmt.Errorf("idempotency: Resolve: an answer with status %d has no body", a.Status)
	}
	header := res.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if _, ok := header["Content-Type"]; !ok && len(a.Body) > 0 && a.Kind == answer.KindKept {
		header.Set("Content-Type", http.DetectContentType(a.Body))
	}
	a.Header = response.Recorded(header, g.set.drop)
	if a.Size() > g.set.maxResponseLen {
		return nil, fmt.Errorf("idempotency: Resolve: answer of %d bytes; WithMaxResponseBody allows %d", a.Size(), g.set.maxResponseLen)
	}
	return a, nil
}

// Forget removes what is known of a key, in any state but a run in flight: the next
// request with it runs as the first. seen is what was seen of the key, usually by
// [Guard.Lookup]; see [RecordInfo.Seen]. Key{Record: name} forgets a record whose key is not
// known. A record that cannot be read ([ErrCorrupt]) is
// forgotten if that is what was seen: Seen{State: StateCorrupt}. Forgetting what is not known
// is success. Each success is reported as [event.Forgotten].
//
// Errors: [ErrChanged] when another run has the key by now, when the key is in another state, or
// a run is in flight: look at it again; [ErrCorrupt] when the record cannot be read and another
// state was seen; [ErrNoInspector]; and those of the store. A record that a newer version of
// this package has made, in a form that this one does not know, is not forgotten: that is an
// error of the store, and a process of the newer version can forget it.
func (g *Guard) Forget(ctx context.Context, k Key, seen store.Seen, d Decision) error {
	inspector, err := g.inspect(k)
	if err != nil {
		return err
	}
	id, about := g.lastSeen(ctx, k, seen)
	_, err = bounded(ctx, g.core, storeTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Forget(ctx, k.storeKey(), seen)
	})
	if err == nil {
		g.reportDecision(ctx, id, d, about)
	}
	return err
}

// lastSeen is what an EventForgotten tells of the record, which nobody can look up afterwards, and
// of its key. A record that is gone already, or that cannot be read, tells nothing.
func (g *Guard) lastSeen(ctx context.Context, k Key, seen store.Seen) (Key, event.Event) {
	e := event.Event{Kind: event.Forgotten, Attempt: seen.Attempt, Held: seen.State == store.Held}
	if _, rec, err := g.get(ctx, k); err == nil {
		k = g.identify(ctx, k, rec)
		e.OperationID = g.set.operationID(k, rec.Fingerprint)
		e.Route, e.Age, e.Trace = rec.Label, rec.Age, lastNote(rec.Notes).trace
	}
	return k, e
}
