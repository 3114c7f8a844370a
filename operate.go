package idempotency

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
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

// forEngine returns the resolution with an answer that is made when the record is known. drop are the
// fields that are not recorded, and limit is the size of the largest answer.
func (res Resolution) forEngine(drop []string, limit int64) engine.Resolution {
	return engine.Resolution{
		Outcome: res.Outcome, Decision: engine.Decision(res.Decision),
		Answer: func(fp Fingerprint) (*answer.Answer, error) { return res.answer(fp, drop, limit) },
	}
}

// answer is the answer of a Final resolution for a record, which may be one of Do.
func (res Resolution) answer(fp Fingerprint, drop []string, limit int64) (*answer.Answer, error) {
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
	a.Header = response.Recorded(header, drop)
	if a.Size() > limit {
		return nil, fmt.Errorf("idempotency: Resolve: answer of %d bytes; WithMaxResponseBody allows %d", a.Size(), limit)
	}
	return a, nil
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
	s := g.route.set
	return g.route.engine.Resolve(ctx, intent.Key(k), seen, res.forEngine(s.drop, s.rules.MaxAnswer))
}

// Forget removes what is known of a key, in any state but a run in flight: the next
// request with it runs as the first. seen is what was seen of the key, usually by
// [Guard.Lookup]; see [RecordInfo.Seen]. Key{Record: name} forgets a record whose key is not
// known. A record that cannot be read ([ErrCorrupt]) is
// forgotten if that is what was seen: Seen{State: store.Corrupt}. Forgetting what is not known
// is success. Each success is reported as [event.Forgotten].
//
// Errors: [ErrChanged] when another run has the key by now, when the key is in another state, or
// a run is in flight: look at it again; [ErrCorrupt] when the record cannot be read and another
// state was seen; [ErrNoInspector]; and those of the store. A record that a newer version of
// this package has made, in a form that this one does not know, is not forgotten: that is an
// error of the store, and a process of the newer version can forget it.
func (g *Guard) Forget(ctx context.Context, k Key, seen store.Seen, d Decision) error {
	return g.route.engine.Forget(ctx, intent.Key(k), seen, engine.Decision(d))
}

// Reconcile looks for held keys, at once and then every so often, until ctx ends or
// [Guard.Shutdown] begins. So a key is reported, and settled if it can be, although no client comes
// back for it. Run it in a goroutine of its own, in each process or in one.
//
// It reports each run that is held as [event.Held], once in each process, and as [event.HoldEnding]
// before the hold ends. Among them are the runs of processes that have died, when their lease has
// ended. Then it asks the resolver of the record's route, as a request with the key would, and
// settles the key by what the resolver says: see [WithResolver]. The resolver is that of the guard
// that has the record's label ([WithRoute]), made by [New] or [Guard.With] with the same store. If
// several guards with a resolver have one label, the last one that was made is asked. It gets ctx,
// and its panic is an error. A key whose route has no label, no resolver, or keeps no keys
// ([WithKeptKeys]) is only reported.
//
// A tick asks resolvers for as long as every says, and the keys that are left have their turn at the
// next. It reads the store's index of held records. Besides, it walks slowly through all
// records, some thousands in each tick, because an index may have lost one.
//
// If the store fails, the next tick goes on. That is reported once, as event.StoreError with the Op
// "list", until the store works again. Several processes may reconcile at once: one of them settles
// a key, and the others find it settled, or say the same.
//
// Reconcile returns nil when it ends. It returns an error at once if the store is not a [store.Lister]
// ([ErrNoLister]) or every is not positive. A resolver that calls runtime.Goexit ends the goroutine
// of Reconcile; that is reported as event.StoreError with the Op "resolve".
func (g *Guard) Reconcile(ctx context.Context, every time.Duration) error {
	return g.route.engine.Reconcile(ctx, every)
}
