package store

import "context"

// What a store may be able to do besides. The others are [Lister], [Finder], [TxStore] and [Comparer], each in the file of
// what it is about.

// A ContextStore is a [Store] that can say that none of its calls outlives the deadline of
// its context. A idempotency.Guard calls such a store directly. It calls any other store in a
// goroutine of its own, so that a call that hangs does not hang a client. When too many of
// these goroutines have not come back, it makes no more calls until one does.
//
// A type that embeds a ContextStore becomes one. If its own methods can block for longer,
// it must have an ObeysContext that returns false.
type ContextStore interface {
	// ObeysContext reports whether each call of the store returns by the deadline of its
	// context, with an error if it must. That includes the time that the call waits for
	// a lock or a connection. A call may return sooner when its context is cancelled,
	// but need not: a guard gives each call a deadline. The result must not change
	// during the store's life.
	ObeysContext() bool
}

// A Watcher is a [Store] that can wake a caller when a record settles. With any other
// store, a waiting request asks again at growing intervals.
type Watcher interface {
	// Watch registers interest in a key. After it has returned, each completion, release
	// or hold of the record, by any process, is followed by a value on the channel,
	// provided that a Claim with Watch set has seen the record in flight meanwhile.
	//
	// Values may be merged, or come without reason, for example after a reconnect: the
	// receiver asks again with Claim. The end of a lease is not announced. stop ends the
	// registration. It must be called, and may be called more than once.
	//
	// The channel is nil where nothing can be announced at present, for a reason that the store has
	// reported by an error before, or that its settings have. The receiver then asks at intervals, as it
	// does after an error.
	Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error)
}

// A StepStore is a [Store] that can record parts of a run.
type StepStore interface {
	// SaveStep records value under name, and replaces an earlier value of that name. The
	// owner of a claimed record may save steps, whether or not its lease has ended.
	// Errors: [ErrNotOwner]; [ErrTooLarge] when the store can never take a value of that size.
	// Then nothing was changed.
	SaveStep(ctx context.Context, key string, o Owner, name string, value []byte) error
}

// A Settlement is what [Inspector.Resolve] makes of a held record.
type Settlement struct {
	// Completion is recorded as by [Store.Complete]. If it is nil, the record becomes
	// released.
	Completion *Completion
	// Undone are the steps that are known not to have happened, with their values as the
	// caller saw them. A record that becomes released loses them; one that becomes completed
	// keeps all its steps.
	Undone map[string][]byte
	// Note is what the caller wants to remember of the decision, in at most 512 bytes that mean
	// nothing to a store. The store puts it into the record's Notes with [AppendDecision], in the same
	// atomic step. An empty Note is none.
	Note []byte
}

// An Inspector is a [Store] whose records an operator can look at and settle.
//
// The methods that change a record take what the caller has seen of it. So a decision about
// one run does not settle a later one, and a decision about a held record does not remove an
// answer that was recorded meanwhile.
type Inspector interface {
	// Get returns the record without its answer, which may be a thousand times larger than
	// the rest and is not worth moving for a look. It changes nothing, not even a lapsed
	// lease. Errors: [ErrNotFound], [ErrCorrupt].
	Get(ctx context.Context, key string) (Record, error)

	// GetAnswer is Get with the answer.
	GetAnswer(ctx context.Context, key string) (Record, error)

	// Resolve settles a held record. With a completion the record becomes completed, as
	// by [Store.Complete]. Without one it becomes released and loses the steps that are
	// undone, in one atomic step. The owner has lost the claim. It can neither complete nor
	// release the record any more, but it may claim a released record like anybody else.
	// The record still tells who the owner was: repeating a successful call is success and changes
	// nothing, unless somebody has claimed the record since. With another Note it is the decision of
	// somebody else who came later: that is ErrChanged. Without one it is a repeated call.
	//
	// Errors: [ErrNotFound]; [ErrCorrupt]; [ErrChanged] when the record is not held, or is
	// not what was seen, or when a step that is undone is not there or has another value;
	// [ErrTooLarge], as from Store.Complete. Then nothing has changed.
	Resolve(ctx context.Context, key string, seen Seen, s Settlement) error

	// Forget removes the record that was seen, in any state, unless its lease has not
	// ended. A record that cannot be read is removed if the caller has seen [Corrupt],
	// and a record that can be read is not removed then. Forgetting an absent record is
	// success.
	//
	// Errors: [ErrChanged] when the record is not what was seen or its lease has not ended;
	// [ErrCorrupt] when it cannot be read and the caller has seen another state.
	Forget(ctx context.Context, key string, seen Seen) error
}
