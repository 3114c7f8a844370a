package store

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A State is the state of a [Record], as seen at one moment by the store's clock.
type State uint8

// String returns the name of the state: claimed, released, completed, held or corrupt. The
// zero State is "none", and any other value is "unknown" with its number.
func (s State) String() string {
	switch s {
	case Claimed:
		return "claimed"
	case Released:
		return "released"
	case Completed:
		return "completed"
	case Held:
		return "held"
	case Corrupt:
		return "corrupt"
	case 0:
		return "none"
	default:
		return fmt.Sprintf("unknown(%d)", uint8(s))
	}
}

// The states of a [Record]. The zero State means that there is no record.
const (
	// Claimed means that a run is in flight. If Record.Lease is not positive the
	// lease has ended, and the next Claim takes over.
	Claimed State = iota + 1
	// Released means that no run is in flight and no answer is recorded. The next
	// Claim gets the record.
	Released
	// Completed means that the answer is recorded.
	Completed
	// Held means that the outcome of the last run is unknown and nobody may run.
	Held
	// Corrupt means that there is a record and the store cannot read it. No Record has
	// this state, because a store returns [ErrCorrupt] instead. A [Seen] may have it.
	Corrupt
)

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
	// only in [Completed].
	Status int
	Size   int64
	// Answer is what Complete recorded. It is set only in [Completed], where an empty one is
	// not nil. Claim may leave it out when the fingerprints differ. Of an [Inspector], only
	// GetAnswer returns it; a [Lister] does not.
	Answer []byte
	// MayBeLost says that the store may forget the claim in a crash, until it has acknowledged
	// another call for the record: a renewal, a step, a completion, a release or a hold. A renewal does
	// not count while the run has joined a transaction that is its claim, too. It is set
	// only if Mine is, and if the claim has allowed it.
	MayBeLost bool
	// Lapsed says that the claim was granted because the lease of its last owner had ended.
	// It is set only if Mine is, also when the claim is repeated.
	Lapsed bool
	// Blank says that nothing was done under the record so far: see [Release]. It is set only if Mine is.
	// Without it, an earlier attempt may have done something.
	Blank bool
	// Notes are those of the claims that were granted, one for each attempt, oldest first, as
	// [AppendNote] puts them together and [EachNote] reads them. There are at most 16: a store drops the oldest.
	// They include the caller's own if Mine is set. An attempt whose claim had no note is left
	// out, and a [Lister] may return only the last of them. Beside them are the notes of the last 8 decisions
	// that had one, as [AppendDecision] adds them and [EachDecision] reads them. Claim and a Lister may leave
	// these out.
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
	// State is that of the record. [Corrupt] stands for a record that cannot be read,
	// and so tells neither its owner nor its attempt.
	State State
}

// String returns the form that [Seen.UnmarshalText] reads: state, attempt and owner, joined by
// slashes.
func (s Seen) String() string { return fmt.Sprintf("%v/%d/%x", s.State, s.Attempt, s.Owner[:]) }

// MarshalText implements [encoding.TextMarshaler] with the text of [Seen.String]. A Seen can be a
// column of a listing, a field of a form or a flag of a command until somebody decides.
func (s Seen) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It refuses an attempt below 1, of which no record
// is, except with a record that cannot be read and so tells none. If it returns an error, s is unchanged.
func (s *Seen) UnmarshalText(text []byte) error {
	var read Seen
	if parts := strings.Split(string(text), "/"); len(parts) == 3 {
		read.Attempt, _ = strconv.Atoi(parts[1])
		if owner, err := hex.DecodeString(parts[2]); err == nil {
			copy(read.Owner[:], owner)
		}
		for read.State = Corrupt; read.State > 0 && read.State.String() != parts[0]; {
			read.State--
		}
	}
	if read.String() != string(text) || read.Attempt < 1 && read != (Seen{State: Corrupt}) {
		return fmt.Errorf("idempotency: %.100q is not what was seen of a record", text)
	}
	*s = read
	return nil
}
