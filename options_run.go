package idempotency

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/seal"
)

// WithTTL sets how long a recorded answer is replayed. The default is 24 hours. The TTL
// is between a millisecond and ten years. When it ends the key is free again: a client
// that retries later runs the handler a second time. Choose a TTL that is longer than the
// retry window of every client.
func WithTTL(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.rules.TTL = d })
}

// WithRetention sets how long a record without an answer is kept: claimed, released or
// held. It must be at least two leases and at most ten years. When it ends, the key is free
// and the next request runs as the first, also if the key was held: allow for the time that a
// person needs to look at it.
//
// A held key, and one claimed under [Hold], has no end of its own: it is kept until somebody
// resolves or forgets it, unless WithRetention sets an end. By default, and with zero, other
// records without an answer are kept for the TTL, and for at least two leases; under Hold and
// [HoldAfter] for at least 30 days, because a client may come late for what was decided after
// days. Whatever the retention, a record under which nothing was done ends after two leases,
// and under Hold after 15 minutes if that is longer.
//
// If an end is set, an [event.HoldEnding] is reported before it, when a request, a
// [Guard.Lookup] or [Guard.Reconcile] meets the key.
func WithRetention(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.rules.Retention = d })
}

// WithLease sets how long a claim lasts unless it is renewed. The default is 30 seconds,
// the least is 10 milliseconds and the most 24 hours. The guard renews the lease every
// third of it, so a run of any length keeps its claim while the store can be reached.
//
// A key stays blocked for up to a lease after its process has died. A run that is cut off from
// the store has its context cancelled with [ErrLeaseLost] after just over a half to nine
// tenths of the lease, and may be overtaken after two thirds of it or later. Make the lease at
// least twice as long as the longest failover of the store that runs should survive.
func WithLease(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.rules.Lease = d })
}

// WithRebinding says whether a key may come with another payload after a run whose outcome was
// [NotExecuted], so that a client can correct a request that was refused before anything was
// done. By default the key stays bound to its first payload for as long as the record is kept,
// and another one gets 409 key-reused. A redirect that keeps the method (307, 308) never binds
// a key, because the client repeats the request at another path.
//
// It goes together with [WithOutcome] or [Operation.SetOutcome]. By default a 422 is [Final]: it
// is recorded, and the corrected request needs another key. A route that calls failed validation
// NotExecuted lets each request be validated anew, and with WithRebinding also a corrected one.
//
// A key stays bound if an earlier attempt may have had an effect for the first payload: if its
// outcome was [Unknown], if it did not end, or if a [Step] was begun.
func WithRebinding(on bool) Option {
	return optionFunc(func(s *settings) { s.rules.Rebinding = on })
}

// WithRecovery sets what happens to a key whose run ended with [Unknown] outcome. The default is
// [Rerun]; [Hold] and [HoldAfter] keep the key from running again.
func WithRecovery(r Recovery) Option {
	return optionFunc(func(s *settings) {
		s.recovery, s.rules.Hold, s.rules.MaxAttempts = r, r == Hold || r == HoldAfter(1), max(0, int(r))
	})
}

// WithFailOpen says whether the handler, or the function of [Do], runs unprotected when
// the store is unavailable or full. By default the request is refused. Failing open trades
// duplicates for availability and is right only where a duplicate is harmless. A request
// is refused all the same if the store reported a record of its key before it failed. A full store
// is asked whether it has one. If it is not a [store.Inspector], it cannot tell, and the request is refused.
// [Hold] and [HoldAfter] cannot go with it, because an unprotected run would not ask whether its key is held.
//
// An unprotected run has no [Operation] and its steps are not recorded. Its derived keys are
// those that a protected run has, so that downstream services recognise a repetition. Each
// such run is an [event.FailOpen] and an error in the log.
func WithFailOpen(on bool) Option {
	return optionFunc(func(s *settings) { s.rules.FailOpen = on })
}

// WithClientCancel says whether a client that hangs up cancels the context of its run. By
// default it does not: the run goes on, and the client finds the answer on its next try.
// If it does, a client that has hung up before its key is claimed gets no run. A run that has seen
// the end of its context and answers with an error status has an [Unknown] outcome, unless it says
// otherwise with [Operation.SetOutcome].
func WithClientCancel(on bool) Option {
	return optionFunc(func(s *settings) { s.rules.ClientCancel = on })
}

// WithSealer sets what encrypts answers and the values of steps before they reach the
// store. Nil, the default, stores them as they are.
//
// A guard with a sealer accepts only sealed records. When a service that ran without a
// sealer gets one, keys that were completed before are answered with 503
// store-unavailable until their TTL ends. Another prefix for the records ([WithPrefix])
// avoids that, but a request that is retried across the change runs again.
func WithSealer(sealer Sealer) Option {
	return optionFunc(func(s *settings) {
		s.rules.Seals.Sealer = seal.Calm(sealer)
	})
}

// WithKeptKeys says whether the scope and the key of each record are kept beside it, sealed by
// [WithSealer], without which it is an error. By default nobody gets from a record back to its
// key. With it, [Guard.Lookup] by the name of a record tells its Key, its ID and its derived keys
// to a process that has the sealing key, and [Guard.Reconcile] can ask the route's resolver.
//
// In Redis that takes about 280 bytes more for a record without an answer, and 130 for one with an
// answer. A key that takes more than 1,024 bytes when it is sealed with its scope is not kept. If
// the sealer fails or panics, the request is refused with 503 store-unavailable before it runs, because its
// answer could not be sealed either.
func WithKeptKeys(on bool) Option {
	return optionFunc(func(s *settings) { s.rules.Seals.KeptKeys = on })
}

// WithFindableScope says whether all records of a scope can be found together, to look at them or to erase them when a
// tenant goes; see [Guard.Find]. By default they cannot, without a walk over all records. Each record costs an entry in
// an index, which in Redis is about 100 bytes. Records from before the option are not found.
//
// Only a digest of the scope is stored. The store must be a [store.Finder] that keeps tags, or [New] and [Guard.With]
// refuse it.
func WithFindableScope(on bool) Option {
	return optionFunc(func(s *settings) { s.rules.FindableScope = on })
}

// WithTombstones sets for how long it stays known who has forgotten a record, and why. The default is 30 days. Zero or less
// leaves nothing. The most is ten years.
//
// [Guard.Forget] and [Guard.Erase] leave a tombstone: what the record was (state, route, attempt and age), and the last
// decisions about it, of which the last is the forgetting. [Guard.Lookup] returns it in [RecordInfo].Forgotten, with
// [ErrNotFound]. The next request with the key does not meet it: the key is as one that was never used. Clients do not
// see it, [Guard.LookupHandler] neither.
//
// A tombstone is a record of the library itself ([store.IsOwn]) under a digest of the record's name. It has no answer, no
// steps and no key. What people have written as Actor and Reason stands in it, unsealed: put nothing personal there that
// has to be erased. A full store takes none: then the record is removed all the same, and an [event.StoreError] with the Op
// "tombstone" is reported.
func WithTombstones(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.rules.Tombstones = d })
}

// WithDerivation sets what [Operation.ID] and [DeriveKey] are derived from besides scope, key
// and request. By default that is nothing, and both arguments may be zero. Two services that
// share a downstream account and could see the same scope and key need different namespaces.
// With a secret, a caller who knows a key cannot compute what is derived from it. The secret
// is copied. To change either is to change all derived keys: a retry across the change is
// a new effect for downstream services, and nobody is asked about what was held before: see [ErrOtherKeys]. What was recorded before a change of the secret is not found by
// [Guard.Find] any more.
func WithDerivation(namespace string, secret []byte) Option {
	if secret != nil {
		secret = append([]byte{}, secret...)
	}
	return optionFunc(func(s *settings) { s.rules.Derivation = intent.NewDerivation(namespace, secret) })
}

// WithResolver sets a function that finds out what became of a run whose outcome is
// unknown, by asking the system that the run had its effect on. The guard calls it when a
// request meets a held key, with the request's context, or when [Guard.Reconcile] does. In one process it is called for one
// request at a time for each key; the others get 409 outcome-unknown meanwhile. The guard
// settles the key with the returned [Resolution], as [Guard.Resolve] would for this
// attempt, and the request goes on from there to a replay or to a run. An [Unknown]
// resolution leaves the key held. So does an error, which is logged. The function must obey its context and bound
// its own time, as a request's context may have no deadline: [Guard.Shutdown] waits for it as for a run.
//
// It needs a store that is a [store.Inspector]: [New] and [Guard.With] refuse any other. Nil,
// the default, leaves held keys to [Guard.Resolve] and [Guard.Forget].
func WithResolver(f func(ctx context.Context, rec RecordInfo) (Resolution, error)) Option {
	return optionFunc(func(s *settings) { s.resolver = f })
}

// WithRoute names the route, for events, logs and operators: "POST /charges", for example, or
// the name of a job of [Do]. The label has at most 64 bytes of printable ASCII. It must not
// depend on the request, because metrics have a series for each. By default it is empty, and
// the route is http.Request.Pattern.
func WithRoute(label string) Option {
	return optionFunc(func(s *settings) { s.rules.Route = label })
}

// WithObserver adds a function that receives each [event.Event], for metrics and tracing. A
// guard made by [Guard.With] has the observers of the guard it was made from and its own.
// They are called in the order in which they were added, synchronously, possibly from
// several goroutines, and must not block. If one panics, the guard logs the panic and
// serves the request all the same. Nil adds nothing.
func WithObserver(f func(context.Context, event.Event)) Option {
	return optionFunc(func(s *settings) {
		if f != nil {
			o := &s.rules.Reporter.Observers
			*o = append(slices.Clip(*o), f) // guards share what is before it
		}
	})
}

// WithLogger sets the logger for what needs an operator's attention: failed store
// calls, lost leases, answers that could not be recorded, errors of the route's functions. Nil, the default, means
// slog.Default at the time of the event.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(s *settings) { s.rules.Reporter.Logger = l })
}

// WithWait lets a duplicate of a request in flight wait up to d for the answer and
// then replay it. Zero, the default, answers 409 at once. A waiting request holds its
// connection: at most 5 minutes are accepted, and a few seconds are sensible. [Limits].WaitingBytes
// bounds how many requests of a process wait. Any further request gets 409 at once.
//
// If the run that is waited for ends without an answer, the waiting requests get 409 too, and none
// of them runs: no client has retried. If its process died, one of them runs.
func WithWait(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.rules.Wait = d })
}

// WithTransaction says whether all that a run does is in the transaction that it joins, or in
// steps. Such a run has done nothing unless its answer is recorded, because one commit makes both
// durable or neither. By default it is false.
//
// It changes what the end of a run means. An [Unknown] outcome becomes [NotExecuted]: a server
// error, a panic, a process that died. The next request runs again, also under [Hold], which
// applies only after [ErrUncertain] and [Operation.SetOutcome] with Unknown. What begun steps have
// done stays, and so do their records. So no transaction of the run begins while a step, or a run inside
// of it, is in hand: it is refused with [ErrStepMisuse]. A handler of such a route that does anything elsewhere, in
// another database for example, must do it in a [Step].
//
// The guard sends no byte before the commit: an answer that is larger than
// [Limits].ResponseBody allows rolls the transaction back, and Flush is refused. If the commit
// fails, the client gets 503 rolled-back where another attempt may succeed, and else 500
// cannot-commit. In both cases nothing has happened. A handler that rolls back and then answers
// success is believed, and its answer is recorded: it may have found the work done already. One that
// wanted the commit and ignores the error that there is none gets cannot-commit.
//
// A handler that commits the transaction itself, past the functions of the store's package, has been
// executed. The outcome of its run is [Final] or Unknown then, and the guard reports
// [event.CommittedAlone].
//
// A run that answers success and has joined no transaction is believed, and reported as [event.NotJoined].
// Usually its handler writes in a transaction that a library has begun, and a crash makes its rows twice.
//
// The store must be a [store.TxStore], or [New] and [Guard.With] return or panic with [ErrCannotJoin].
// The transaction itself is begun by functions of the store's package, which use adapter.Join.
func WithTransaction(on bool) Option {
	return optionFunc(func(s *settings) { s.rules.Transaction = on })
}
