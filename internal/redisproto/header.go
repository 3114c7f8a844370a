package redisproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"example.com/idempotency/store"
)

// A Header is what the field m of a record says: everything but the answer and the steps.
// lua/record.lua describes its stored form.
type Header struct {
	State       store.State
	Flags       byte
	Attempt     uint32
	Lease       time.Duration
	Lifetime    time.Duration // what the expiry is set to, unless the record is endless
	Fingerprint store.Fingerprint
	Owner       store.Owner
	// Status and Size are those of the answer. They are zero unless the record is completed.
	Status int
	Size   int64
}

// HeaderVersion is the version of the form of a record.
const HeaderVersion = 1

const (
	// headerSize is also the longest value that Redis keeps in a listpack by default,
	// so that a record without an answer is one small allocation of the server.
	headerSize = 64
	// aboutSize is how much longer the header of a completed record is.
	aboutSize = 6

	flagHold     = 1   // the claim becomes held when its lease ends
	flagDetached = 2   // the answer is in the field AnswerField
	flagHoldEnds = 4   // a held record ends with its lifetime
	flagLapsed   = 8   // held because the lease ended, and not by its owner
	flagBlank    = 16  // nothing was done under the record
	flagUnbound  = 32  // released for a claim with any fingerprint, or claimed after that
	flagTookOver = 64  // claimed, because the lease of another owner had ended
	flagByHand   = 128 // settled by hand: the owner has lost the claim
	// asFound is what a release says instead of flagUnbound: unbound if the claim has found it so.
	asFound = 64

	maxLease    = math.MaxUint32 * time.Millisecond // 49 days
	maxLifetime = (1<<40 - 1) * time.Millisecond    // 34 years
)

// NewClaim returns the header of a first claim. The durations are rounded up to a millisecond.
func NewClaim(c store.Claim) (Header, error) {
	lifetime, err := RoundTTL(c.Retention)
	if err != nil {
		return Header{}, err
	}
	lease, err := RoundTTL(c.Lease)
	if err != nil || lease > maxLease || lease > lifetime {
		return Header{}, fmt.Errorf("cannot keep a lease of %v with a retention of %v", c.Lease, c.Retention)
	}
	if c.Owner == (store.Owner{}) {
		return Header{}, errors.New("claim has no owner")
	}
	h := Header{
		State: store.Claimed, Flags: flagBlank, Attempt: 1, Lease: lease, Lifetime: lifetime,
		Fingerprint: c.Fingerprint, Owner: c.Owner,
	}
	if c.Hold {
		h.Flags |= flagHold
	}
	if c.HoldEnds {
		h.Flags |= flagHoldEnds
	}
	return h, nil
}

func (h *Header) is(flag byte) bool { return h.Flags&flag != 0 }

// holds reports whether the record is held, or claimed by a claim that says hold.
func (h *Header) holds() bool {
	return h.State == store.Held || h.State == store.Claimed && h.is(flagHold)
}

// endless reports whether the record has no end of its own.
func (h *Header) endless() bool { return !h.is(flagHoldEnds) && h.holds() }

// expiry is what the expiry was last set to. An endless record has one too, so that the rest
// of its lease can be computed.
func (h *Header) expiry() time.Duration {
	if h.endless() {
		return maxLifetime
	}
	return h.Lifetime
}

// RoundTTL returns d in whole milliseconds. It rounds up: an expiry of zero would delete
// the record.
func RoundTTL(d time.Duration) (time.Duration, error) {
	if d <= 0 || d > maxLifetime {
		return 0, fmt.Errorf("cannot keep a record for %v", d)
	}
	if whole := d.Truncate(time.Millisecond); whole < d {
		return whole + time.Millisecond, nil
	}
	return d, nil
}

// Encode returns the stored form.
func (h *Header) Encode() []byte { return h.appendTo(make([]byte, 0, headerSize+aboutSize)) }

// appendTo appends the stored form.
func (h *Header) appendTo(b []byte) []byte {
	b = append(b, HeaderVersion, byte(h.State), h.Flags)
	b = binary.BigEndian.AppendUint32(b, h.Attempt)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Lease.Milliseconds()))
	b = append(b, encodeLifetime(h.Lifetime)...)
	b = append(b, h.Fingerprint[:]...)
	b = append(b, h.Owner[:]...)
	if h.State == store.Completed {
		b = appendAbout(b, h.Status, h.Size)
	}
	return b
}

// appendAbout appends what a header tells of the answer of its record.
func appendAbout(b []byte, status int, size int64) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(status))
	return binary.BigEndian.AppendUint32(b, uint32(size))
}

// encodeLifetime returns the five bytes of a lifetime in a header. The result has room for what
// appendAbout appends.
func encodeLifetime(d time.Duration) []byte {
	b := make([]byte, 0, 8+aboutSize)
	return binary.BigEndian.AppendUint64(b, uint64(d.Milliseconds()))[3:]
}

// parseHeader reads the stored form.
func parseHeader(s string) (Header, error) {
	size := headerSize
	if len(s) > 1 && store.State(s[1]) == store.Completed {
		size += aboutSize
	}
	if len(s) > 0 && (s[0] > HeaderVersion || s[0] == HeaderVersion && len(s) > size) {
		return Header{}, ErrNewer
	}
	if len(s) != size || s[0] != HeaderVersion {
		return Header{}, Damage("header of %d bytes", len(s))
	}
	b := []byte(s)
	h := Header{
		State:   store.State(b[1]),
		Flags:   b[2],
		Attempt: binary.BigEndian.Uint32(b[3:]),
		Lease:   time.Duration(binary.BigEndian.Uint32(b[7:])) * time.Millisecond,
		// The first three of the eight bytes belong to the lease.
		Lifetime:    time.Duration(binary.BigEndian.Uint64(b[8:])&(1<<40-1)) * time.Millisecond,
		Fingerprint: [32]byte(b[16:]),
		Owner:       [16]byte(b[48:]),
	}
	if h.State < store.Claimed || h.State > store.Held || h.Attempt == 0 {
		return Header{}, Damage("impossible header")
	}
	if h.State == store.Completed {
		h.Status = int(binary.BigEndian.Uint16(b[64:]))
		h.Size = int64(binary.BigEndian.Uint32(b[66:]))
	}
	return h, nil
}

// record returns what the header says about a record that expires in ttl.
func (h *Header) record(ttl time.Duration) Record {
	r := Record{
		Record: store.Record{
			State:       h.State,
			Attempt:     int(h.Attempt),
			Owner:       h.Owner,
			Fingerprint: h.Fingerprint,
			Status:      h.Status,
			Size:        h.Size,
			TTL:         ttl,
			// If the server's clock was set back, ttl is above the lifetime.
			Age: max(h.expiry()-ttl, 0),
		},
		Holding: h.holds(),
	}
	if h.endless() {
		r.TTL = store.Forever
	}
	if h.State == store.Claimed {
		r.Lease = max(h.Lease-r.Age, 0)
	}
	return r
}

// holdLapsed reports a lapsed claim that says hold as held. The script that claims writes
// that down. All other readers only see it.
func (h *Header) holdLapsed(r *Record) {
	if h.State == store.Claimed && h.is(flagHold) && r.Lease == 0 {
		r.State = store.Held
	}
}
