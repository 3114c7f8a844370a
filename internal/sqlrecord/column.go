package sqlrecord

import (
	"fmt"
	"time"

	"example.com/idempotency/store"
)

// Columns are the columns of a row as [Scan] reads them, without the answer, which may be a
// thousand times larger than the rest.
const Columns = `version, state, attempt, owner, fingerprint, hold, hold_ends, watched, marks, lease, retention, ` +
	`since, touched, expires, label, notes, sealed_key, steps, status, coalesce(octet_length(answer), 0)`

// A Scanner is a row of a result.
type Scanner interface{ Scan(dest ...any) error }

// Scan reads the columns of a row and then those that the statement adds.
func Scan(from Scanner, added ...any) (r Row, err error) {
	var (
		state              string
		owner, fingerprint []byte
		lease, retention   int64
	)
	err = from.Scan(append([]any{
		&r.Version, &state, &r.Attempt, &owner, &fingerprint, &r.SaysHold, &r.HoldEnds, &r.Watched, &r.Marks,
		&lease, &retention, &r.Since, &r.Touched, &r.Expires, &r.Label, &r.Notes, &r.SealedKey, &r.Steps, &r.Status, &r.Size,
	}, added...)...)
	if err != nil {
		return r, err
	}
	if r.State, err = parseState(state); err != nil {
		return r, err
	}
	if r.Marks&^knownMarks != 0 {
		return r, fmt.Errorf("%w: version %d of a row, marks %#x", store.ErrUnreadableHere, r.Marks>>formBits+Form, int64(r.Marks))
	}
	if len(owner) != len(r.Owner) || len(fingerprint) != len(r.Fingerprint) || r.Attempt < 1 {
		return r, fmt.Errorf("%w: owner, fingerprint or attempt", store.ErrCorrupt)
	}
	r.Owner, r.Fingerprint = store.Owner(owner), store.Fingerprint(fingerprint)
	r.Lease, r.Retention = time.Duration(lease)*time.Microsecond, time.Duration(retention)*time.Microsecond
	return r, nil
}

// Values returns what is written to the columns from state to status, and to answer.
func (r *Row) Values() []any {
	return []any{
		r.State.String(), r.Attempt, r.Owner[:], r.Fingerprint[:], r.SaysHold, r.HoldEnds, r.Watched, int64(r.Marks),
		Micros(r.Lease), Micros(r.Retention), int64(r.Since), int64(r.Touched), int64(r.Expires), r.Label,
		Full(r.Notes), Full(r.SealedKey), Full(r.Steps), r.Status, r.Answer,
	}
}

// Full returns b, or no bytes where b is nil, which would be NULL.
func Full(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// parseState returns the state of that name. One that this version does not know is
// [store.ErrUnreadableHere]: a newer version has written it.
func parseState(name string) (store.State, error) {
	for s := store.Claimed; s <= store.Held; s++ {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%w: unknown state", store.ErrUnreadableHere)
}
