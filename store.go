package idempotency

import (
	"context"
	"fmt"
	"time"
)

// A Store keeps one record for each key and decides, atomically, who may run.
//
// The keys a store is given are fixed-length digests of scope and client key:
// printable ASCII without spaces, safe as a name in any backend. A store never
// sees the client's own key.
//
// # States
//
//	absent    --Claim-->    claimed  (owner, attempt 1, lease)
//	claimed   --Renew-->    claimed  (lease and retention start anew)
//	claimed   --Complete--> completed (answer, kept for the TTL)
//	claimed   --Release-->  released (attempt, fingerprint and steps kept; claimable at once)
//	claimed   --Hold-->     held     (nobody may run)
//	claimed   --lease ends, Claim--> claimed, attempt n+1, or held if either claim says Hold
//	released  --Claim-->    claimed, attempt n+1
//	any       --TTL or retention ends--> absent
//
// # What every implementation must promise
//
//   - Each call is one atomic step, as seen by all processes that share the store.
//   - Time is the store's own: durations go in, and only the store's clock decides
//     when a lease, a TTL or a retention ends. Clients' clocks never matter.
//   - Each call is safe to repeat with the same arguments, because client libraries
//     resend commands whose reply was lost: an owner that claims again is told that
//     it holds the claim (same attempt, lease started anew, also if it has ended and
//     nobody took over), completing twice is success, releasing or holding twice is success.
//   - Owner decides, not lease: [Store.Complete] by the owner is accepted after its
//     lease has ended, as long as nobody took the record over.
//   - A completed record never changes until its TTL ends.
//   - What was acknowledged is kept. A store that is full refuses new keys with
//     [ErrStoreFull]; it never evicts a live record, because evicting is a duplicate
//     effect. Complete, Release and Hold are accepted even when it is full.
//
// Any error that is not one of the sentinels named at a method means "outcome
// unknown": the call may or may not have taken effect. Implementations must honour
// the context's deadline, and must be safe for concurrent use. Slices passed in are
// not modified later by the caller, and slices handed out must not be modified by it.
//
// Package storetest is this contract as tests. Further abilities are the optional
// interfaces [ContextStore], [Watcher], [StepStore] and [Inspector], which a [Guard]
// finds by type assertion. The stores of this package have all of them.
type Store interface {
	// Claim asks for the right to run. It is the atomic set-if-absent, and one call
	// tells everything: the returned [Record] says whether the claim is the caller's
	// (Mine), and otherwise what stands there.
	//
	// A record with another fingerprint is returned unchanged, whatever its state;
	// the caller compares Record.Fingerprint. An owner that has released or held its
	// claim does not get it back, as long as the record remembers it, that is until
	// another owner claims: a claim that was delayed on the wire should not come alive
	// after its request is over. If it does, it ends with its lease.
	//
	// Errors: [ErrStoreFull] when the key is new and there is no room for it,
	// [ErrCorrupt] when what is stored cannot be read.
	Claim(ctx context.Context, key string, c Claim) (Record, error)

	// Renew starts the lease and the retention of the claim anew, with the durations
	// that it was claimed with. It also succeeds when the lease has ended and nobody
	// took over. Errors: [ErrNotOwner].
	Renew(ctx context.Context, key string, o Owner) error

	// Complete records how the run ended. It is accepted from the owner in state
	// claimed (lapsed or not) and held, and again, without effect, in state completed.
	// Errors: [ErrNotOwner].
	Complete(ctx context.Context, key string, o Owner, c Completion) error

	// Release gives the claim back: the next Claim with the same fingerprint gets it
	// as the next attempt. Attempt, fingerprint and steps are kept for the retention,
	// which starts anew. Errors: [ErrNotOwner], which says only that the caller does
	// not hold the claim now: it may have released it with an earlier call whose
	// reply was lost, and another has claimed since.
	Release(ctx context.Context, key string, o Owner) error

	// Hold marks the outcome of the run as unknown. Nobody may run until the record
	// is resolved or forgotten, or its retention, which starts anew, ends.
	// Errors: [ErrNotOwner].
	Hold(ctx context.Context, key string, o Owner) error
}

// An Owner is the random token of one claim. It is made once per request, with a
// cryptographic random source, and never reused: a store tells a repeated call from
// another client's by it.
type Owner [16]byte

// A Claim is what a request asks a [Store] for.
type Claim struct {
	// Owner identifies the claiming request.
	Owner Owner
	// Fingerprint is what the key is bound to.
	Fingerprint Fingerprint
	// Lease is how long the claim lasts unless renewed. Always positive; stores may
	// round it up to a millisecond.
	Lease time.Duration
	// Retention is how long the record is kept while it has no answer. Always at
	// least twice the lease.
	Retention time.Duration
	// Hold says that a claim whose lease ends becomes held instead of being taken
	// over. It is kept with the record; a lapsed record is held if the claim that
	// made it or the claim that finds it says so.
	Hold bool
	// Watch says that the caller will wait for the record to settle, so that a store
	// need only announce what somebody waits for. See [Watcher].
	Watch bool
}

// A Completion is what [Store.Complete] records. It may get more fields, whose zero value
// will mean what their absence means today: name the fields in a composite literal.
type Completion struct {
	// Answer is what the guard replays. A store keeps it as it is, and must tell an
	// empty answer from none.
	Answer []byte
	// TTL is how long the record is kept from now on. Always positive; stores may
	// round it up to a millisecond.
	TTL time.Duration
}

// A State is what a record is in, as seen at one moment by the store's clock.
type State uint8

// The states of a [Record]. The zero State stands for the lack of a record.
const (
	// StateClaimed: a run is in flight. Its lease may have ended (Record.Lease is
	// not positive): then the next Claim takes it over.
	StateClaimed State = iota + 1
	// StateReleased: no run is in flight and no answer is recorded; the next Claim
	// gets it.
	StateReleased
	// StateCompleted: the answer is recorded.
	StateCompleted
	// StateHeld: the outcome of the last run is unknown and nobody may run.
	StateHeld
)

// String returns the state's name: claimed, released, completed or held. The zero State
// is "none", and any other value is "unknown" with its number.
func (s State) String() string {
	switch s {
	case StateClaimed:
		return "claimed"
	case StateReleased:
		return "released"
	case StateCompleted:
		return "completed"
	case StateHeld:
		return "held"
	case 0:
		return "none"
	default:
		return fmt.Sprintf("unknown(%d)", uint8(s))
	}
}

// A Record is what a store holds for one key, as seen by one call.
type Record struct {
	// State of the record. A lapsed claim that says Hold is reported as held.
	State State
	// Mine is true when the call was a Claim and the caller holds it now. The
	// caller then has the attempt numbered Attempt.
	Mine bool
	// Attempt counts the claims of this record: 1, 2, 3… It never falls while the
	// record exists, and so doubles as a fencing number.
	Attempt int
	// Fingerprint of the first claim. It never changes.
	Fingerprint Fingerprint
	// Origin is the owner of the first claim: a random identity of the record that
	// stays the same over all its attempts.
	Origin Owner
	// Lease is how much longer a claimed record is protected from takeover. Zero in
	// every other state.
	Lease time.Duration
	// TTL is how much longer the record is kept.
	TTL time.Duration
	// Age is the time since the record was last claimed, renewed, completed,
	// released or held.
	Age time.Duration
	// Answer is what Complete recorded. Only set in StateCompleted; may be left out
	// by Claim when the fingerprints differ.
	Answer []byte
	// Steps are the values saved with [StepStore], by name. Set by Claim when Mine
	// and Attempt is above 1, and by Get. Nil if there are none.
	Steps map[string][]byte
}

// A ContextStore is a [Store] that can say that none of its calls outlives the deadline
// of its context. A [Guard] makes the calls of such a store directly. It calls any
// other store in a goroutine of its own, so that a call that hangs does not hang a
// client, and stops calling while too many of these goroutines have not come back.
//
// A type that embeds a ContextStore is one too: if its own methods can block for longer,
// it must have an ObeysContext that returns false.
type ContextStore interface {
	// ObeysContext reports whether each call of the store returns by the deadline of its
	// context, with an error if it must. That includes the time that the call waits for
	// a lock or a connection. A call may return sooner when its context is cancelled,
	// but need not: a guard gives each call a deadline. The result must not change
	// during the store's life.
	ObeysContext() bool
}

// A Watcher is a [Store] that can wake a caller when a record settles. Without it a
// waiting request asks again at growing intervals.
type Watcher interface {
	// Watch registers interest in a key. From its return on, each completion,
	// release or hold of the record, by any process, is followed by a value on the
	// channel, provided that a Claim with Watch set saw the record in flight
	// meanwhile. Values may be merged or come without reason (after a reconnect, for
	// example): the receiver asks again with Claim. Lapsed leases are not announced.
	// stop ends the registration, is safe to call more than once, and must be called.
	Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error)
}

// A StepStore is a [Store] that can record parts of a run.
type StepStore interface {
	// SaveStep records value under name, replacing an earlier value of that name. It
	// is accepted from the owner of a claimed record, lapsed or not.
	// Errors: [ErrNotOwner].
	SaveStep(ctx context.Context, key string, o Owner, name string, value []byte) error
}

// An Inspector is a [Store] whose records can be looked at and settled by hand.
//
// The methods that change something take the attempt that the caller saw, so that a
// decision about one run never settles a later one.
type Inspector interface {
	// Get returns the record. It changes nothing, a lapsed lease included.
	// Errors: [ErrNotFound], [ErrCorrupt].
	Get(ctx context.Context, key string) (Record, error)

	// List calls visit for the records of the store, in no order, until visit
	// returns false. Records that come or go meanwhile may be missed or seen twice;
	// Answer and Steps may be left out, and what cannot be read is passed over.
	List(ctx context.Context, visit func(key string, r Record) bool) error

	// Resolve settles a held record. With a completion the record becomes completed, as
	// by [Store.Complete]. With nil it becomes released, and anybody may claim it,
	// including the owner that lost it. Repeating a successful call is success.
	// Errors: [ErrNotFound]; [ErrChanged] when the record is not held or has another
	// attempt.
	Resolve(ctx context.Context, key string, attempt int, c *Completion) error

	// Forget removes a record in any state but a live claim. Attempt 0 stands for any
	// attempt: what cannot be read has none to be told. Forgetting what is not there is
	// success. Errors: [ErrChanged] when the record has another attempt or its lease
	// has not ended.
	Forget(ctx context.Context, key string, attempt int) error
}
