package idempotency

// The contract of a store: its methods, its optional interfaces, and what they tell
// about a record.

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Store keeps one record for each key and decides, atomically, who may run.
//
// The keys that a store is given are digests of scope and client key. They have a fixed
// length and consist of printable ASCII without spaces, so that any backend can use them
// as names. A store never sees the client's own key.
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
//     begin, with [ErrStoreFull]. It never evicts a live record, because the next request for that
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
// [Watcher], [StepStore], [Inspector], [Lister] and [TxStore] are further abilities, which a [Guard] finds
// by type assertion. The stores of this package have all but the last, which needs a database.
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
	// Errors: [ErrStoreFull] when a run would begin, and there is no room for what it brings;
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
	Hold(ctx context.Context, key string, o Owner) error
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
	// under [WithTransaction]. A store that makes use of it says so in Record.MayBeLost.
	MayBeLost bool
	// Tenant is a digest of the scope, equal for equal scopes, for a store that has limited
	// room and does not let one tenant fill it. Other stores ignore it. Zero stands for no
	// tenant: for [SharedScope], which is all callers at once.
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
}

// A Completion is what [Store.Complete] records. It may get more fields. Their zero values
// will mean what their absence means today, so name the fields in a composite literal.
type Completion struct {
	// Answer is what the guard replays. A store returns it byte by byte, and must tell an
	// empty answer from a missing one.
	Answer []byte
	// Status is what lookups tell of the answer: the HTTP status, at most 999, or 0 if the
	// answer is the result of [Do]. A store keeps it beside the answer.
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

// A State is the state of a [Record], as seen at one moment by the store's clock.
type State uint8

// The states of a [Record]. The zero State means that there is no record.
const (
	// StateClaimed means that a run is in flight. If Record.Lease is not positive the
	// lease has ended, and the next Claim takes over.
	StateClaimed State = iota + 1
	// StateReleased means that no run is in flight and no answer is recorded. The next
	// Claim gets the record.
	StateReleased
	// StateCompleted means that the answer is recorded.
	StateCompleted
	// StateHeld means that the outcome of the last run is unknown and nobody may run.
	StateHeld
	// StateCorrupt means that there is a record and the store cannot read it. No Record has
	// this state, because a store returns [ErrCorrupt] instead. A [Seen] may have it.
	StateCorrupt
)

// String returns the name of the state: claimed, released, completed, held or corrupt. The
// zero State is "none", and any other value is "unknown" with its number.
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
	case StateCorrupt:
		return "corrupt"
	case 0:
		return "none"
	default:
		return fmt.Sprintf("unknown(%d)", uint8(s))
	}
}

// Forever is the TTL of a [Record] that is kept until somebody resolves or forgets it.
const Forever time.Duration = math.MaxInt64

// A Record is what a store holds for one key, as seen by one call.
type Record struct {
	// State is the state of the record. A lapsed claim that says Hold is reported as
	// held.
	State State
	// Mine is true when the call was a Claim and the caller holds the claim now. The
	// number of the caller's attempt is Attempt.
	Mine bool
	// Attempt counts the claims of this record: 1, 2, 3… It never falls while the
	// record exists, so it can serve as a fencing number.
	Attempt int
	// Owner is that of the last claim that was granted, also when the claim has ended since.
	// It is never used again, so it tells an attempt from those of all other records, even of
	// the same key. Claim may leave it out.
	Owner Owner
	// Fingerprint is that of the first claim. It changes only when a claim gets a record
	// that was released unbound.
	Fingerprint Fingerprint
	// Lease is how much longer a claimed record is protected from takeover. It is zero
	// in every other state.
	Lease time.Duration
	// TTL is how much longer the record is kept. It is [Forever] for a record that has no
	// end of its own.
	TTL time.Duration
	// Age is the time since the record was last claimed, renewed, completed, released
	// or held.
	Age time.Duration
	// Status is that of the [Completion], and Size the length of its Answer. Both are set
	// only in StateCompleted.
	Status int
	Size   int64
	// Answer is what Complete recorded. It is set only in StateCompleted, where an empty one is
	// not nil. Claim may leave it out when the fingerprints differ. Of an [Inspector], only
	// GetAnswer returns it; a [Lister] does not.
	Answer []byte
	// MayBeLost says that the store may forget the claim in a crash, until it has acknowledged
	// another call for the record: a renewal, a step, a completion, a release or a hold. It is set
	// only if Mine is, and if the claim has allowed it.
	MayBeLost bool
	// Lapsed says that the claim was granted because the lease of its last owner had ended.
	// It is set only if Mine is, also when the claim is repeated.
	Lapsed bool
	// Notes are those of the claims that were granted, one for each attempt, oldest first, as
	// [AppendNote] puts them together and [EachNote] reads them. There are at most 16: a store drops the oldest.
	// They include the caller's own if Mine is set. An attempt whose claim had no note is left
	// out, and a [Lister] may return only the last of them.
	Notes []byte
	// Label is that of the last claim that was granted. Claim may leave it out.
	Label string
	// SealedKey is the last one that came with a claim that was granted. Claim may leave it out.
	SealedKey []byte
	// Steps are the values saved with [StepStore], by name. Get sets them, and so does
	// a Claim whose Mine is true and whose Attempt is above 1. Steps is nil if there
	// are none.
	Steps map[string][]byte
}

// Seen returns what a caller that has got this record has seen of it.
func (r Record) Seen() Seen { return Seen{Owner: r.Owner, Attempt: r.Attempt, State: r.State} }

// A Seen is what an operator, or a program in an operator's place, has seen of a record. A
// decision carries it. The store refuses the decision with [ErrChanged] if by then the record
// is another attempt or in another state, or if the key has another record. The zero Seen fits
// no record.
type Seen struct {
	// Owner is that of the record. It names the run that was seen.
	Owner Owner
	// Attempt is that of the record. It counts from 1 again when a record was forgotten or
	// has expired.
	Attempt int
	// State is that of the record. StateCorrupt stands for a record that cannot be read,
	// and so tells neither its owner nor its attempt.
	State State
}

// String returns the form that [Seen.UnmarshalText] reads: state, attempt and owner, joined by
// slashes.
func (s Seen) String() string { return fmt.Sprintf("%v/%d/%x", s.State, s.Attempt, s.Owner[:]) }

// MarshalText implements [encoding.TextMarshaler] with the text of [Seen.String]. A Seen can be a
// column of a listing, a field of a form or a flag of a command until somebody decides.
func (s Seen) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. If it returns an error, s is unchanged.
func (s *Seen) UnmarshalText(text []byte) error {
	var read Seen
	if parts := strings.Split(string(text), "/"); len(parts) == 3 {
		read.Attempt, _ = strconv.Atoi(parts[1])
		if owner, err := hex.DecodeString(parts[2]); err == nil {
			copy(read.Owner[:], owner)
		}
		for read.State = StateCorrupt; read.State > 0 && read.State.String() != parts[0]; {
			read.State--
		}
	}
	if read.String() != string(text) {
		return fmt.Errorf("idempotency: %.100q is not what was seen of a record", text)
	}
	*s = read
	return nil
}

// A ContextStore is a [Store] that can say that none of its calls outlives the deadline of
// its context. A [Guard] calls such a store directly. It calls any other store in a
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
	// The record still tells who the owner was: repeating a successful call is success, unless
	// somebody has claimed the record since.
	//
	// Errors: [ErrNotFound]; [ErrCorrupt]; [ErrChanged] when the record is not held, or is
	// not what was seen, or when a step that is undone is not there or has another value;
	// [ErrTooLarge], as from Store.Complete. Then nothing has changed.
	Resolve(ctx context.Context, key string, seen Seen, s Settlement) error

	// Forget removes the record that was seen, in any state, unless its lease has not
	// ended. A record that cannot be read is removed if the caller has seen StateCorrupt,
	// and a record that can be read is not removed then. Forgetting an absent record is
	// success.
	//
	// Errors: [ErrChanged] when the record is not what was seen or its lease has not ended;
	// [ErrCorrupt] when it cannot be read and the caller has seen another state.
	Forget(ctx context.Context, key string, seen Seen) error
}
