package idempotency

import (
	"context"
	"errors"
	"net/http"
	"time"

	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// Resolve settles a held key by hand, when it has been found out what became of its
// run. seen is what was seen of the key, usually by [Guard.Lookup], when that was found out;
// see [RecordInfo.Seen]. The guard must have the sealer, and should have the TTL and [WithDerivation], of the
// key's route. Key{Record: name} settles a record whose key is not known.
//
// It is one step of the store: a request that arrives meanwhile meets either the held key or
// the settled one, and never a key that is being settled. So a client that retries without a
// pause keeps nobody from resolving. Repeating a successful call is success, unless somebody has
// claimed the key since, which is [ErrChanged]. So is the call of another Actor, or for another Reason, who comes
// later and says the same: the record names the one who has decided. Each success is reported as
// [event.Resolved], a repeated one under the same ID.
//
// Errors: [ErrNotFound]; [ErrChanged] when the key is not held any more, or by another
// run: look at it again; [ErrStepsRecorded] when a recorded step contradicts the decision;
// [ErrUncertain] when Resume would repeat a step in doubt; [ErrOtherKeys] when its route has another WithDerivation now; [ErrCorrupt] or [ErrUnreadableHere] when a
// step cannot be read, and the decision is not Final; [ErrNoInspector]; those of the store; and others
// for a resolution that says neither Final, Resume nor NotExecuted, that has an answer and is not
// Final, or whose answer could not be one of the route's. In each case nothing is changed.
func (g *Guard) Resolve(ctx context.Context, k Key, seen store.Seen, res Resolution) error {
	return g.route.engine.Resolve(ctx, intent.Key(k), seen, res.forEngine(g.route.set.recording))
}

// Forget removes what is known of a key, in any state but a run in flight: the next
// request with it runs as the first. It leaves a tombstone, by which [Guard.Lookup] tells who has
// forgotten the record, and why: see [WithTombstones]. seen is what was seen of the key, usually by
// [Guard.Lookup]; see [RecordInfo.Seen]. Key{Record: name} forgets a record whose key is not
// known. A record that cannot be read ([ErrCorrupt]) is
// forgotten if that is what was seen: Seen{State: store.Corrupt}. A value of another type that
// somebody has written there is none of the store's, and stays. Forgetting what is not known
// is success. Each success is reported as [event.Forgotten].
//
// Errors: [ErrChanged] when another run has the key by now, when the key is in another state, when
// a run is in flight, or when somebody else forgets it at this moment: look at it again; [ErrCorrupt] when the record cannot be read and another
// state was seen; [ErrNoInspector]; and those of the store. A record that a newer version of
// this package has made, in a form that this one does not know, is not forgotten: that is an
// error of the store, and a process of the newer version can forget it.
func (g *Guard) Forget(ctx context.Context, k Key, seen store.Seen, d Decision) error {
	return g.route.engine.Forget(ctx, intent.Key(k), seen, engine.Decision(d))
}

// A Finding says which records [Guard.Find] looks for: those with a Reference, or all of a Scope. One of the two is
// empty. It may get more fields, so name the fields in a composite literal.
type Finding struct {
	// Reference is what the function of [WithReference] has returned, or the argument of [ForReference].
	Reference string
	// Scope is what the guard's [ScopeFunc] has returned, or the Scope of a [Key], on routes with [WithFindableScope].
	Scope string
	// States, Route and OlderThan ask only for records in one of these states, of that route, and whose Age is at least
	// that. Empty stands for all.
	States    []store.State
	Route     string
	OlderThan time.Duration
	// Limit and Cursor are those of a [store.Query].
	Limit  int
	Cursor string
}

// query returns what of the finding the store is asked.
func (f *Finding) query() store.Query {
	return store.Query{States: f.States, Label: f.Route, OlderThan: f.OlderThan, Limit: f.Limit, Cursor: f.Cursor}
}

// Find returns records that have a reference or a scope, a page at a time, from an index of the store. It finds what routes of
// this store have recorded under [WithReference] and [WithFindableScope], with the secret of this guard. The records are in no
// order, and without Steps and InDoubt, which [Guard.Lookup] tells. Their Key is that of a lookup by the name of the record.
//
// Next is the Cursor of the next call. It is empty if there is none. A call may find fewer records than its Limit, or none, and
// still have a next one.
//
// Errors: [ErrNoFinder]; [store.ErrBadCursor]; those of the store; and others for a finding that has neither a reference nor a
// scope, or both.
func (g *Guard) Find(ctx context.Context, f Finding) (records []RecordInfo, next string, err error) {
	by, value := intent.ByReference, f.Reference
	switch {
	case (f.Reference == "") == (f.Scope == ""):
		return nil, "", errors.New("idempotency: Find: give a Reference or a Scope")
	case f.Scope != "":
		by, value = intent.ByScope, f.Scope
	}
	found, next, err := g.route.engine.Find(ctx, by, value, f.query())
	for _, one := range found {
		records = append(records, infoOf(one))
	}
	return records, next, err
}

// An Erasing says what [Guard.Erase] erases. It may get more fields, so name the fields in a composite literal.
type Erasing struct {
	// Scope is whose records they are: see [Finding].
	Scope string
	// Held says that held keys, and those with a step in doubt, are erased, too. Nobody will find out then whether their
	// runs have had an effect, and a retry repeats it.
	Held bool
	// OlderThan keeps records that were claimed, renewed or settled within that time: until clients have given up, a retry of
	// their keys would run again. Answers end by themselves, and all of it can be erased later. Zero keeps none.
	OlderThan time.Duration
	// DryRun says that nothing is changed, and nothing reported: what is returned is what would be done.
	DryRun bool
	// Decision says who erases, and why.
	Decision
}

// An Erased says what [Guard.Erase] has done. Completed are records with an answer: a retry of their keys runs again.
// Unanswered are those without, and Held those that were held. InFlight, HeldLeft, Younger and Changed were left: the first run, the
// second are held, or have a step in doubt, the third are not older than the Erasing says, and the last have changed while Erase looked
// at them.
type Erased struct{ Completed, Unanswered, Held, InFlight, HeldLeft, Younger, Changed int }

// Erase forgets all records of a scope, on routes with [WithFindableScope], as [Guard.Forget] forgets one: when a tenant goes,
// for example, and its answers must not stay. It leaves what runs, what is held or has a step in doubt unless the Erasing says otherwise, what is younger than the Erasing says, and
// what comes while it looks; so let the tenant in no more, and repeat it until nothing is left. Records from before the option, or of another
// secret, are not found. Each record that was erased is reported as [event.Forgotten], with the decision, and leaves a
// tombstone as by Forget ([WithTombstones]): let the Reason not name the tenant.
//
// Errors: those of [Guard.Find] and of Forget but [ErrChanged]. What was done until then is returned, too.
func (g *Guard) Erase(ctx context.Context, what Erasing) (Erased, error) {
	if what.DryRun {
		ctx = engine.Rehearse(ctx)
	}
	done, err := g.route.engine.Erase(ctx, what.Scope, engine.Erasing{Held: what.Held, OlderThan: what.OlderThan}, engine.Decision(what.Decision))
	return Erased(done), err
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
// several guards with a resolver have one label, the last one that was made is asked. Its context ends
// after every, when [Guard.Shutdown] begins, or with ctx, so that one key does not keep the others waiting; its panic is an error. A key whose route has no label, no resolver, or keeps no keys
// ([WithKeptKeys]) is only reported.
//
// A tick asks resolvers for as long as every says, and the keys that are left have their turn at the
// next. It reads the store's index of held records. Besides, it walks slowly through all
// records, some thousands in each tick, because an index may have lost one.
//
// It also asks for the last four records that its process has completed, and reports those that are
// gone as [event.RecordGone]: the store has forgotten what it had acknowledged. And it looks for the mark of the store's
// birth, as [Guard.Check] does: a store that is not the one of the tick before is an [event.StoreReset].
//
// If the store fails, the next tick goes on. That is reported once, as event.StoreError with the Op
// "list", until the store works again. Several processes may reconcile at once: one of them settles
// a key, and the others find it settled, or say the same.
//
// Reconcile returns nil when it ends. It returns an error at once if the store is not a [store.Lister]
// ([ErrNoLister]) or every is not positive. A resolver that calls runtime.Goexit ends the goroutine
// of Reconcile; that is reported as [event.Unresolved].
func (g *Guard) Reconcile(ctx context.Context, every time.Duration) error {
	return g.route.engine.Reconcile(ctx, every)
}

// Check asks the store whether it can be trusted with records, if it can tell, as that of Redis can, and whether it still is
// the store that this process knew. Call it at start, and whenever you like.
//
// For that, the first Check or [Guard.Reconcile] of all processes leaves a mark in the store: a record of the library itself
// ([store.IsOwn]), which says when the store was born, or rather first seen. The process remembers the mark. If a later
// look finds another one, or none and makes one, the store was emptied or replaced in between, and keys from before run
// again: that is an [event.StoreReset] and an error of Check, once. A process that starts knows of no mark yet. A memory
// store has none, because it ends together with what its process remembers, and neither has a store that is not a
// [store.Inspector].
//
// The error joins all that was found: what the store says, that it was reset, or that its mark cannot be read or made,
// with the error of the store.
func (g *Guard) Check(ctx context.Context) error {
	return g.route.engine.Check(ctx)
}

// Lookup returns what is known of a key. It changes nothing, and does not read the recorded
// answer, which may be large or in the seal of another process. Of a record that cannot be read
// nothing is known but that: its state is [store.Corrupt], and the error is [ErrCorrupt].
//
// An operator who does not have the client's key has the name of the record, from an [event.Event] or a
// listing: Lookup(ctx, Key{Record: name}). Such a lookup tells everything but the key, ID, and
// what is derived from the key. If the route keeps keys ([WithKeptKeys]) and the guard has its
// sealer, it tells them too.
//
// Of a key without a record, RecordInfo.Forgotten tells what was forgotten of it, by whom and why, for as long as
// [WithTombstones] says. The error is [ErrNotFound] all the same.
//
// Errors: [ErrNotFound], [ErrCorrupt], [ErrNoInspector], and those of the store. A record in a
// form that only a newer version of this package knows is [ErrUnreadableHere]: look with the
// newer version.
func (g *Guard) Lookup(ctx context.Context, k Key) (RecordInfo, error) {
	return told(g.route.engine.LookInto(ctx, intent.Key(k)))
}

// Answer returns the recorded answer of a key, as its retries get it, to an operator who may see it: the caller makes sure of that. It
// is reported as an [event.AnswerRead] of the actor. Of a key of [Do], the status is 0, and the body is the encoded value, or the text of
// an error that is [ErrPermanent]. An answer that was too large to be kept has no body. The guard needs the sealer of the key's
// route. The body must not be changed.
//
// Errors: [ErrNotFound], also if there is a record without an answer; [ErrCorrupt] and [ErrUnreadableHere]; [ErrNoInspector];
// those of the store.
func (g *Guard) Answer(ctx context.Context, k Key, actor string) (status int, header http.Header, body []byte, err error) {
	a, err := g.route.engine.Answer(ctx, intent.Key(k), actor)
	return a.Status, http.Header(a.Fields()), a.Body, err
}

// told returns what a lookup has found, for programs.
func told(found engine.Found, err error) (RecordInfo, error) {
	info := RecordInfo{Key: Key(found.Key), Record: found.Key.Name()}
	switch {
	case err == nil:
		info = infoOf(found)
	case errors.Is(err, ErrCorrupt):
		info.State = store.Corrupt
	case found.Forgotten == nil:
		return RecordInfo{}, err
	}
	if found.Forgotten != nil {
		info.Forgotten = new(infoOf(engine.Found{Key: intent.Key{Record: info.Record}, Record: *found.Forgotten}))
	}
	return info, err
}

// Stats are what a guard is busy with in this process at one moment; see [Guard.Stats].
type Stats struct {
	// Running are the runs in flight: handlers and functions of [Do] that have not returned,
	// and those whose client waits while the run is settled.
	Running int
	// ByRoute is Running of each route: of the label that [WithRoute] gave, of http.Request.Pattern, or of "". It is nil if
	// nothing runs.
	ByRoute map[string]int
	// Waiting are the requests that wait for the answer of another run, as [WithWait] lets
	// them. [Limits].WaitingBytes bounds them.
	Waiting int
	// Pending are the runs that have ended and that the store could not be told about yet. They
	// are settled in the background when the store is back. PendingBytes is the memory that
	// their answers take. At most 4,096 runs are pending, with 64 MiB. A run that [Guard.Shutdown] has
	// given up is pending until the call returns that was under way, two seconds at most for a small answer.
	Pending      int
	PendingBytes int64
	// GivingBack are the claims whose reply never came, and that the guard releases in the
	// background because they may have been granted. Nothing has run under them. At most 4,096
	// are given back at a time. Under Rerun that takes two leases from the store's first answer,
	// and under Hold 15 minutes if that is longer: so late a claim may still arrive.
	GivingBack int
	// Abandoned are the calls that a store has not returned from although their time is over.
	// Each keeps a goroutine. At 4,096 no further call is made until one returns. A store that
	// obeys its context ([store.ContextStore]) has none.
	Abandoned int
	// Oldest are the oldest runs in flight, one of each route, and Long are all that have lasted for longer than a third of
	// their lease, 16 at most: both with the oldest first. Of each, Record, Route, State, Attempt and Started are set. A run
	// that hangs is the first of its route.
	Oldest, Long []RecordInfo
}

// Stats returns what the guard is busy with in this process, together with all guards made from
// it by [Guard.With]. It asks no store, and is cheap enough to be called for every scrape of
// metrics.
func (g *Guard) Stats() Stats {
	s := g.route.engine.Stats()
	return Stats{
		Running: s.Running, ByRoute: s.ByRoute, Waiting: s.Waiting, Pending: s.Pending, PendingBytes: s.PendingBytes,
		GivingBack: s.GivingBack, Abandoned: s.Abandoned, Oldest: inFlight(s.Oldest), Long: inFlight(s.Long),
	}
}

func inFlight(runs []engine.InFlightRun) (infos []RecordInfo) {
	for _, r := range runs {
		infos = append(infos, RecordInfo{Record: r.Record, Route: r.Route, State: store.Claimed, Attempt: r.Attempt, Started: r.Started})
	}
	return infos
}

// Shutdown ends the guard, and all guards made from it by [Guard.With]. From then on every new
// request with a key gets 503, also where an answer is recorded, and those that wait for
// another's answer get 409. [Do] returns [ErrShutdown], also inside a run that is still in
// flight. Steps of such a run go on.
//
// Shutdown returns when the runs in flight have ended and are settled, and the functions of
// [WithResolver] that were called have returned; or when ctx ends. In the
// second case it gives up the runs that the store has failed to settle, reports each as
// [event.RecordingLost], and returns the context's error. A run that is still in flight keeps its claim for
// as long as it lasts, and is reported as [event.RunLeft].
//
// Claims whose reply never came, and under which nothing has run, are given back before. The store
// has one more lease to answer that, if ctx does not end before. Shutdown reports each that it gives
// up as [event.ClaimLeft]. That is not an error, also when ctx has ended.
//
// Give ctx a deadline. While the store is unavailable, Shutdown waits for as long as runs are worth
// settling: until their retention ends, and without end for those that hold their key.
//
// Call http.Server.Shutdown and Guard.Shutdown together, with one deadline. When both have
// returned, close the store. The example is a function for that. Shutdown may be called more
// than once.
func (g *Guard) Shutdown(ctx context.Context) error {
	err := g.route.engine.Shutdown(ctx)
	brief, cancel := context.WithTimeout(ctx, shadowPatience)
	defer cancel()
	_ = g.route.beside.engine.Stop(brief)
	return err
}

// shadowPatience is how long a shutdown waits for what shadows ask their store. Nothing depends on them.
const shadowPatience = 2 * time.Second
