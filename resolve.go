package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/response"
)

// A Resolution settles a key whose outcome is unknown; see [Guard.Resolve] and
// [WithResolver].
type Resolution struct {
	// Outcome is what was found out: [Final] records the answer below for all further
	// requests; [NotExecuted] lets the next request run, and begin again the steps that
	// were begun under [AtMostOnce] without a result; [Unknown] leaves it held.
	Outcome Outcome
	// Attempt is the run that this is about, as [Guard.Lookup] reported it. Zero means
	// whichever is held when the call is made; a resolver need not set it.
	Attempt int
	// Status, Header and Body are the answer of a Final resolution. A zero Status
	// means 200. For a key of [Do], Body is the value as its codec encodes it.
	Status int
	Header http.Header
	Body   []byte
}

// checkStore reports what the settings need and the store cannot do.
func (s *settings) checkStore(store Store) error {
	if _, ok := store.(Inspector); s.resolver != nil && store != nil && !ok {
		return fmt.Errorf("idempotency: WithResolver: %w", ErrNoInspector)
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

// resolveHeld asks the resolver about a held record. It reports whether the record may
// have settled, so that it is worth another look.
func (g *Guard) resolveHeld(ctx context.Context, l *lease) bool {
	if !g.core.resolving.enter(l.key) {
		return false
	}
	defer g.core.resolving.leave(l.key)
	failed := func(err error) bool {
		l.observe(Event{Kind: EventStoreError, Op: "resolve", Err: err})
		return false
	}
	_, rec, err := g.get(ctx, l.id)
	if err != nil {
		return failed(err)
	}
	if rec.State != StateHeld {
		return true
	}
	res, err := g.set.resolver(ctx, g.set.recordInfo(l.id, rec))
	if err != nil {
		return failed(err)
	}
	if res.Outcome == Unknown {
		return false
	}
	res.Attempt = rec.Attempt
	if err := g.Resolve(ctx, l.id, res); err != nil && !errors.Is(err, ErrChanged) {
		return failed(err)
	}
	return true
}

// Resolve settles a held key by hand, when it has been found out what became of its
// run. The guard must have the sealer, and should have the TTL, of the key's route.
// Requests that arrive meanwhile get either the state before or the state after.
//
// Repeating a successful call is success, except where NotExecuted has taken away the
// marks of steps: that is done under a claim, and so raises the attempt by one.
//
// Errors: [ErrNotFound]; [ErrChanged] when the key is not held, or by another attempt, or
// has been claimed before the marks were taken away: look at it again; [ErrNoInspector];
// [ErrCorrupt] when NotExecuted meets a step that cannot be read, and nothing is changed;
// those of the store; and others for a resolution that says neither Final nor NotExecuted,
// or whose answer could not be one of the route's.
func (g *Guard) Resolve(ctx context.Context, k Key, res Resolution) error {
	if res.Outcome != Final && res.Outcome != NotExecuted {
		return fmt.Errorf("idempotency: Resolve: outcome %v settles nothing; give Final or NotExecuted", res.Outcome)
	}
	inspector, rec, err := g.get(ctx, k)
	if err != nil {
		return err
	}
	attempt := rec.Attempt
	if res.Attempt != 0 {
		attempt = res.Attempt
	}
	var settled *Completion
	if res.Outcome == Final {
		a, err := g.resolvedAnswer(res, rec.Fingerprint)
		if err != nil {
			return err
		}
		sealed, err := g.sealAgain(a, k.storeKey(), rec)
		if err != nil {
			return err
		}
		settled = &Completion{Answer: sealed, TTL: g.set.ttl}
	}
	begun, err := g.begunSteps(k, rec)
	if err != nil && res.Outcome == NotExecuted {
		return err // a mark that cannot be read would not be taken away
	}
	timeout := storeTimeout
	if settled != nil {
		timeout += sizeTime(int64(len(settled.Answer)))
	}
	_, err = bounded(ctx, g.core, timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Resolve(ctx, k.storeKey(), attempt, settled)
	})
	if err != nil || res.Outcome == Final {
		return err
	}
	return g.undoSteps(ctx, k, rec, begun, attempt)
}

// begunSteps are the names of the steps that have a mark and no result.
func (g *Guard) begunSteps(k Key, rec Record) ([]string, error) {
	var begun []string
	for name, stored := range rec.Steps {
		value, err := g.set.unsealStep(stored, k.storeKey(), rec.Fingerprint, name)
		if err != nil {
			return nil, err
		}
		if value[0] == stepStarted {
			begun = append(begun, name)
		}
	}
	return begun, nil
}

// undoSteps replaces the marks of steps that were begun and are now known not to have
// happened: otherwise they would hold the key again. Only an owner may change steps, so
// the record is claimed for it. If that fails, or the process dies, a mark that is left
// does no harm: the next run finds it, and the key is held and resolved again. If there was
// a run in between, the resolution says nothing of the steps that it has begun or done.
func (g *Guard) undoSteps(ctx context.Context, k Key, rec Record, begun []string, attempt int) error {
	if len(begun) == 0 {
		return nil
	}
	l := new(lease)
	l.init(access{core: g.core, set: &g.set, id: k, key: k.storeKey(), client: ctx, route: g.set.route}, rec.Fingerprint)
	c := claiming{guard: g, lease: l, client: ctx}
	claimed, err := c.ask(false)
	switch {
	case err != nil:
		c.releaseGhost()
		return err
	case !claimed.Mine:
		return ErrChanged
	}
	release := func() error { return l.release(l.claim.Owner, l.timeout()) }
	if claimed.Attempt != attempt+1 {
		return errors.Join(ErrChanged, release())
	}
	for _, name := range begun {
		if err = l.recordStep(name, []byte{stepUndone}); err != nil {
			break
		}
	}
	return errors.Join(err, release())
}

// sealAgain returns the stored form of an answer, and the one that is recorded already if
// it is that of the same answer: a store tells a call that is repeated by its bytes, and
// a sealer makes others each time.
func (g *Guard) sealAgain(a *response.Answer, key string, rec Record) ([]byte, error) {
	if rec.State == StateCompleted {
		recorded, err := g.set.unseal(rec.Answer, key, rec.Fingerprint, nil)
		if err == nil && bytes.Equal(recorded.Encode(key, rec.Fingerprint), a.Encode(key, rec.Fingerprint)) {
			return rec.Answer, nil
		}
	}
	return g.set.seal(a, key, rec.Fingerprint)
}

// resolvedAnswer is the answer of a Final resolution for a record, which may be one of Do.
func (g *Guard) resolvedAnswer(res Resolution, fp Fingerprint) (*response.Answer, error) {
	a := &response.Answer{Kind: response.KindKept, Status: res.Status, Body: res.Body}
	if fp[0] == digest.VersionJob {
		a.Kind = response.KindValue
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if a.Status < 200 || a.Status > 999 {
		return nil, fmt.Errorf("idempotency: Resolve: %d is no status of an answer", res.Status)
	}
	if len(a.Body) > 0 && !response.BodyAllowed(a.Status) {
		return nil, fmt.Errorf("idempotency: Resolve: an answer with status %d has no body", a.Status)
	}
	header := res.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if _, ok := header["Content-Type"]; !ok && len(a.Body) > 0 && a.Kind == response.KindKept {
		header.Set("Content-Type", http.DetectContentType(a.Body))
	}
	a.Header = response.Recorded(header, g.set.drop)
	if a.Size() > g.set.maxResponseLen {
		return nil, fmt.Errorf("idempotency: Resolve: answer of %d bytes; WithMaxResponseBody allows %d", a.Size(), g.set.maxResponseLen)
	}
	return a, nil
}

// Forget removes what is known of a key, in any state but a run in flight: the next
// request with it runs as the first. Forgetting what is not known is success.
//
// Errors: [ErrChanged] when a run is in flight, [ErrNoInspector], and those of the
// store. A record that cannot be read ([ErrCorrupt]) is forgotten too. A record that a newer
// version of this package has made, in a form that this one does not know, is not: that is an
// error of the store, and a process of the newer version can forget it.
func (g *Guard) Forget(ctx context.Context, k Key) error {
	inspector, rec, err := g.get(ctx, k)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil && !errors.Is(err, ErrCorrupt):
		return err
	}
	_, err = bounded(ctx, g.core, storeTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Forget(ctx, k.storeKey(), rec.Attempt)
	})
	return err
}
