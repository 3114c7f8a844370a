// Package store is the contract between a guard and the place where its records live. It is for
// authors of stores, and for those who look at records. A program that only wraps handlers gets its
// store from idempotency.NewMemoryStore, idempotency.NewRedisStore or a module such as pgstore.
//
// A store implements [Store], whose [Store.Claim] is the atomic set-if-absent. Further abilities are
// interfaces that a guard finds by type assertion: [ContextStore], [Watcher], [StepStore],
// [Inspector], [Lister] and [TxStore]. Package storetest is the contract as tests: a store that passes
// them is correct.
package store

import (
	"context"
	"time"
)

// A Store keeps one record for each key and decides, atomically, who may run.
//
// The keys that a store is given are digests of scope and client key. They have a fixed
// length and consist of printable ASCII without spaces, so that any backend can use them
// as names. A store never sees the client's own key. The few records of the library itself have names of the same
// length, which begin with a dot: see [IsOwn].
//
// # States
//
//	absent    --Claim-->    claimed  (owner, attempt 1, lease)
//	claimed   --Renew-->    claimed  (lease and retention start anew)
//	claimed   --Complete--> completed (answer, kept for the TTL)
//	claimed   --Release-->  released (attempt, fingerprint and steps kept; claimable at once;
//	                                 see [Release] for a run that has done nothing)
//	claimed   --Hold-->     held     (nobody may run)
//	claimed   --lease ends, Claim--> claimed, attempt n+1, or held if either claim says Hold
//	released  --Claim-->    claimed, attempt n+1
//	any       --TTL or retention ends--> absent  (held: see Claim.HoldEnds)
//
// # What every implementation must promise
//
//   - Each call is one atomic step, as seen by all processes that share the store.
//   - Time is the store's own. Durations go in, and only the store's clock decides when a
//     lease, a TTL or a retention ends. The clocks of its callers never matter.
//   - Each call is safe to repeat with the same arguments, because client libraries
//     resend a command when its reply is lost. An owner that claims again is told that it
//     holds the claim: the attempt is the same and the lease starts anew, even if it had
//     ended, as long as nobody took over. Completing, releasing or holding twice is
//     success.
//   - The owner decides, not the lease. [Store.Complete] by the owner is accepted after
//     its lease has ended, as long as nobody took over.
//   - A completed record never changes until its TTL ends.
//   - What was acknowledged is kept, except a claim of which the store has said that it may be lost
//     ([Claim].MayBeLost). A full store refuses claims under which a run would
//     begin, with [ErrFull]. It never evicts a live record, because the next request for that
//     key would run again, and still accepts Renew, Complete, Release and Hold.
//
// An error other than the sentinels named at a method means that the outcome is unknown:
// the call may or may not have taken effect. A store must honour the deadline of the
// context and must be safe for concurrent use.
//
// A store copies what it keeps of a slice that it is given, and does not read the slice once the call
// has returned: its memory is the caller's then, and gets other contents. A slice that the store hands
// out never changes. Neither the store nor a caller may write to it.
//
// Package storetest is this contract as tests. The optional interfaces [ContextStore],
// [Comparer], [Watcher], [StepStore], [Inspector], [Lister], [Finder] and [TxStore] are further abilities, which an idempotency.Guard finds
// by type assertion. The Redis store has all but the last, which needs a database. The memory store is the
// same only as itself, and needs no Comparer either.
type Store interface {
	// Claim asks for the right to run. It is the atomic set-if-absent. One call tells
	// everything: Record.Mine says whether the claim is the caller's, and the rest of
	// the [Record] says what the store holds for the key.
	//
	// A record with another fingerprint is returned unchanged, whatever its state, unless it
	// was released unbound: see [Release]. The caller compares Record.Fingerprint.
	//
	// An owner that has released or held its claim does not get it back: a claim that was
	// delayed on the wire must not start a run after its request is over. A record
	// remembers only its last owner, for as long as it is kept. If another owner has claimed
	// in between, or the record has ended, a delayed claim may succeed. Nobody runs under it.
	// It lapses like any other: the next claim takes over, or finds it held if either says
	// Hold. A guard gives back such a claim if it never got the reply, for as long as
	// [Release.Keep] of an undone run.
	//
	// A Record that comes with an error means nothing: the guard takes the claim for one whose
	// reply was lost, unless the error is one of those below.
	//
	// Errors: [ErrFull] when a run would begin, and there is no room for what it brings;
	// [ErrCorrupt] when the stored record cannot be read; [ErrUnreadableHere] when a newer
	// version of the store can read it.
	Claim(ctx context.Context, key string, c Claim) (Record, error)

	// Renew starts the lease and the retention of the claim anew, with the durations
	// of the claim. It also succeeds when the lease has ended and nobody took over.
	// Errors: [ErrNotOwner].
	Renew(ctx context.Context, key string, o Owner) error

	// Complete records how the run ended. The owner may complete a record that is
	// claimed (lapsed or not) or held. Completing it again is success and changes
	// nothing. Errors: [ErrNotOwner]; [ErrTooLarge] when the store can never take an answer of
	// that size. Then nothing was changed, and the owner may complete the record with a smaller
	// one.
	Complete(ctx context.Context, key string, o Owner, c Completion) error

	// Release gives the claim back. The next Claim with the same fingerprint gets it as
	// the next attempt. Attempt, fingerprint and steps are kept for the retention, which
	// starts anew; r says where less is enough. The owner may also release what became held because its lease ended: it
	// knows that nothing has happened, and the store only knew that it was silent. What the
	// owner itself has held stays held.
	//
	// Errors: [ErrNotOwner]. It says only that the caller does not hold the claim now.
	// An earlier call whose reply was lost may have released it, and another owner may
	// have claimed since.
	Release(ctx context.Context, key string, o Owner, r Release) error

	// Hold marks the outcome of the run as unknown. Nobody may run until the record is
	// resolved or forgotten. It has no other end, unless the claim says HoldEnds: then it
	// is kept for the retention, which starts anew. Errors: [ErrNotOwner].
	//
	// note replaces that of the claim, in the same atomic step. It has at most 64 bytes, as [Claim].Note, and comes
	// only if the claim had one. An empty note is none. Repeating the call changes nothing, whatever its note is.
	Hold(ctx context.Context, key string, o Owner, note []byte) error
}

// An Owner is the random token of one claim. Each request makes its own, from a
// cryptographic random source, and never uses it again: a store tells a repeated call from
// another client's call by the owner.
type Owner [16]byte

// A Claim is what a request asks a [Store] for.
type Claim struct {
	// Owner identifies the claiming request.
	Owner Owner
	// Fingerprint is what the key is bound to.
	Fingerprint Fingerprint
	// Lease is how long the claim lasts unless it is renewed. It is positive. A store
	// may round it up to a millisecond.
	Lease time.Duration
	// Retention is how long the record is kept while it has no answer and is not held. It
	// is at least twice the lease.
	Retention time.Duration
	// Hold says that the claim becomes held when its lease ends, and is not taken over.
	// The store keeps it with the record. A claim that finds a lapsed record and says
	// Hold makes that record held too.
	Hold bool
	// HoldEnds says that the record ends with its retention even while it is held, or
	// claimed by a claim that says Hold. Otherwise such a record has no end of its own: a
	// key whose outcome is unknown does not become free because time has passed. The
	// store keeps it with the record.
	HoldEnds bool
	// MayBeLost says that the store may acknowledge the claim before it is durable, because
	// nothing that the run does outlives a crash in which the claim is lost. The guard sets it
	// under idempotency.WithTransaction. A store that makes use of it says so in Record.MayBeLost. It may
	// even keep no record until the run commits or another call needs one: a release that says Undone
	// then leaves nothing.
	MayBeLost bool
	// Tenant is a digest of the scope, equal for equal scopes, for a store that has limited
	// room and does not let one tenant fill it. Other stores ignore it. Zero stands for no
	// tenant: for idempotency.SharedScope, which is all callers at once.
	Tenant uint64
	// Watch says that the caller waits for the run in flight to settle. A store need only
	// announce records that somebody waits for: see [Watcher]. A released record is settled: the
	// claim is not granted, and the record is returned as it is. It may be unbound, so its
	// fingerprint does not tell who may claim it. A claim whose lease has ended is taken over as
	// usual, and a key without a record is claimed.
	Watch bool
	// Note is what the caller wants to remember of the run, in at most 64 bytes that mean
	// nothing to a store. The store keeps it with the record if the claim is granted. An empty
	// Note is none.
	Note []byte
	// Label names the kind of request that the record is for, in at most 64 bytes of
	// text. There are few labels: a store in memory need only have one copy of each. The
	// store keeps the label of the last claim that was granted.
	Label string
	// SealedKey is the client's key in a form that only its makers can read, in at most 1,024
	// bytes that mean nothing to a store. The store keeps the last one that came with a
	// claim that was granted, for as long as the record. Mostly it is empty, which says nothing.
	SealedKey []byte
	// Tags are what the record can be found by if the store is a [Finder], at most [MaxTags]. Other stores
	// ignore them. The store keeps those of the last claim that had some and was granted, for as long as the
	// record is bound to the fingerprint of that claim: a claim without tags takes none away. Mostly there are
	// none, which costs a store nothing.
	Tags []Tag
}

// A Completion is what [Store.Complete] records. It may get more fields. Their zero values
// will mean what their absence means today, so name the fields in a composite literal.
type Completion struct {
	// Answer is what the guard replays. A store returns it byte by byte, and must tell an
	// empty answer from a missing one.
	Answer []byte
	// Status is what lookups tell of the answer: the HTTP status, at most 999, or 0 if the
	// answer is the result of idempotency.Do. A store keeps it beside the answer.
	Status int
	// TTL is how long the record is kept from now on. It is positive. A store may round
	// it up to a millisecond.
	TTL time.Duration
}

// A Release says what a claim that is given back leaves behind. It may get more fields, so
// name the fields in a composite literal. The zero Release says that the run may have done
// something: the record is kept as it is.
//
// The fields have effect only on a blank record. A record is blank from its first claim on,
// until a step is saved, a claim lapses and is taken over, or a claim ends in any other way
// than by a Release that says Undone. The store keeps that with the record: the caller does
// not know what earlier attempts have done.
type Release struct {
	// Undone says that the run has done nothing. The record stays blank. Without it the
	// other fields have no effect.
	Undone bool
	// Keep is how long the record is kept from now on, if that is shorter than its
	// retention. There is nothing to remember but the owner, whose claim may still arrive a
	// second time. Zero stands for the retention. A store may round it up to a millisecond.
	Keep time.Duration
	// Unbind says that the next Claim of another owner gets the record whatever its
	// fingerprint is, and binds the record to that one. Attempts are counted on.
	Unbind bool
	// Unused says that no run has begun under the claim. A record that this claim has found unbound
	// is unbound again. Any other stays bound, also one that is new with this claim.
	Unused bool
	// Unanswered says that the store has not acknowledged the claim to its caller. A store may
	// acknowledge such a release before it is durable. If the release is then lost and the claim is
	// not, the claim lapses, as if its process had died before the release.
	Unanswered bool
}
