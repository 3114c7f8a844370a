package redisproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// The states of a record, with the numbers of store.State.
const (
	Claimed byte = iota + 1
	Released
	Completed
	Held
)

// A Header is what the field m of a record says: everything but the answer and the steps.
// lua/record.lua describes its stored form.
type Header struct {
	State       byte
	Hold        bool // the claim becomes held when its lease ends
	Detached    bool // the answer is in the field AnswerField
	Attempt     uint32
	HoldEnds    bool // a held record ends with its lifetime
	Lapsed      bool // held because the lease ended, and not by its owner
	Blank       bool // nothing was done under the record
	Unbound     bool // released for a claim with any fingerprint, or claimed after that
	TookOver    bool // claimed, because the lease of another owner had ended
	ByHand      bool // settled by hand: the owner has lost the claim
	Lease       time.Duration
	Lifetime    time.Duration // what the expiry is set to, unless the record is endless
	Fingerprint [32]byte
	Owner       [16]byte
	About       About // zero unless the record is completed
}

// An About is what a header tells of the answer of its record.
type About struct {
	Status int
	Size   int64
}

const (
	headerVersion = 1
	// headerSize is also the longest value that Redis keeps in a listpack by default,
	// so that a record without an answer is one small allocation of the server.
	headerSize = 64
	// aboutSize is how much longer the header of a completed record is.
	aboutSize = 6

	flagHold     = 1
	flagDetached = 2
	flagHoldEnds = 4
	flagLapsed   = 8
	flagBlank    = 16
	flagUnbound  = 32
	flagTookOver = 64 // of a claimed record
	flagByHand   = 128

	// asFound is what a release says instead of flagUnbound: unbound if the claim has found it so.
	asFound = 64

	maxLease    = math.MaxUint32 * time.Millisecond // 49 days
	maxLifetime = (1<<40 - 1) * time.Millisecond    // 34 years

	// Forever is the TTL of a record that has no end of its own.
	Forever time.Duration = math.MaxInt64
)

// NewClaim returns h as the header of a first claim. The durations are rounded up to a
// millisecond.
func NewClaim(h Header) (Header, error) {
	lifetime, err := RoundTTL(h.Lifetime)
	if err != nil {
		return Header{}, err
	}
	lease, err := RoundTTL(h.Lease)
	if err != nil || lease > maxLease || lease > lifetime {
		return Header{}, fmt.Errorf("cannot keep a lease of %v with a retention of %v", h.Lease, h.Lifetime)
	}
	if h.Owner == [16]byte{} {
		return Header{}, errors.New("claim has no owner")
	}
	h.State, h.Attempt, h.Blank, h.Lease, h.Lifetime = Claimed, 1, true, lease, lifetime
	return h, nil
}

// endless reports whether the record has no end of its own.
func (h *Header) endless() bool {
	return !h.HoldEnds && (h.State == Held || h.State == Claimed && h.Hold)
}

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
	var flags byte
	if h.Hold {
		flags |= flagHold
	}
	if h.Detached {
		flags |= flagDetached
	}
	if h.HoldEnds {
		flags |= flagHoldEnds
	}
	if h.Lapsed {
		flags |= flagLapsed
	}
	if h.Blank {
		flags |= flagBlank
	}
	if h.Unbound {
		flags |= flagUnbound
	}
	if h.TookOver {
		flags |= flagTookOver
	}
	if h.ByHand {
		flags |= flagByHand
	}
	b = append(b, headerVersion, h.State, flags)
	b = binary.BigEndian.AppendUint32(b, h.Attempt)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Lease.Milliseconds()))
	b = append(b, encodeLifetime(h.Lifetime)...)
	b = append(b, h.Fingerprint[:]...)
	b = append(b, h.Owner[:]...)
	if h.State == Completed {
		b = h.About.append(b)
	}
	return b
}

func (a About) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(a.Status))
	return binary.BigEndian.AppendUint32(b, uint32(a.Size))
}

// encodeLifetime returns the five bytes of a lifetime in a header. The result has room for an
// [About].
func encodeLifetime(d time.Duration) []byte {
	b := make([]byte, 0, 8+aboutSize)
	return binary.BigEndian.AppendUint64(b, uint64(d.Milliseconds()))[3:]
}

// parseHeader reads the stored form.
func parseHeader(s string) (Header, error) {
	if len(s) > 0 && s[0] > headerVersion {
		return Header{}, ErrNewer
	}
	size := headerSize
	if len(s) > 1 && s[1] == Completed {
		size += aboutSize
	}
	if len(s) != size || s[0] != headerVersion {
		return Header{}, damagef("header of %d bytes", len(s))
	}
	b := []byte(s)
	h := Header{
		State:    b[1],
		Hold:     b[2]&flagHold != 0,
		Detached: b[2]&flagDetached != 0,
		HoldEnds: b[2]&flagHoldEnds != 0,
		Lapsed:   b[2]&flagLapsed != 0,
		Blank:    b[2]&flagBlank != 0,
		Unbound:  b[2]&flagUnbound != 0,
		TookOver: b[2]&flagTookOver != 0,
		ByHand:   b[2]&flagByHand != 0,
		Attempt:  binary.BigEndian.Uint32(b[3:]),
		Lease:    time.Duration(binary.BigEndian.Uint32(b[7:])) * time.Millisecond,
		// The first three of the eight bytes belong to the lease.
		Lifetime:    time.Duration(binary.BigEndian.Uint64(b[8:])&(1<<40-1)) * time.Millisecond,
		Fingerprint: [32]byte(b[16:]),
		Owner:       [16]byte(b[48:]),
	}
	if h.State < Claimed || h.State > Held || h.Attempt == 0 {
		return Header{}, damagef("impossible header")
	}
	if h.State == Completed {
		h.About.Status = int(binary.BigEndian.Uint16(b[64:]))
		h.About.Size = int64(binary.BigEndian.Uint32(b[66:]))
	}
	return h, nil
}

// record returns what the header says about a record that expires in ttl.
func (h *Header) record(ttl time.Duration) Record {
	r := Record{
		State:       h.State,
		Attempt:     int(h.Attempt),
		Owner:       h.Owner,
		Fingerprint: h.Fingerprint,
		About:       h.About,
		TTL:         ttl,
		// If the server's clock was set back, ttl is above the lifetime.
		Age:     max(h.expiry()-ttl, 0),
		Holding: h.State == Held || h.State == Claimed && h.Hold,
	}
	if h.endless() {
		r.TTL = Forever
	}
	if h.State == Claimed {
		r.Lease = max(h.Lease-r.Age, 0)
	}
	return r
}

// holdLapsed reports a lapsed claim that says hold as held. The script that claims writes
// that down. All other readers only see it.
func (h *Header) holdLapsed(r *Record) {
	if h.State == Claimed && h.Hold && r.Lease == 0 {
		r.State = Held
	}
}
