package idempotency

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// redisHeader is what the Redis store knows of a record besides its answer and its
// steps. lua/record.lua describes the stored form and what the scripts do with it.
type redisHeader struct {
	state       State
	hold        bool // the claim becomes held when its lease ends
	detached    bool // the answer is in the field r:<owner>
	attempt     uint32
	lease       time.Duration
	lifetime    time.Duration // what the expiry was last set to
	fingerprint Fingerprint
	owner       Owner
}

const (
	redisHeaderVersion = 1
	// redisHeaderSize is also the longest value that Redis keeps in a listpack by
	// default, so a record without an answer is one small allocation of the server.
	redisHeaderSize = 64

	redisFlagHold     = 1
	redisFlagDetached = 2

	redisMaxLease    = math.MaxUint32 * time.Millisecond // 49 days
	redisMaxLifetime = (1<<40 - 1) * time.Millisecond    // 34 years
)

// errRedisNewer is not ErrCorrupt: the record is sound, and a process that runs the
// newer version of this package can read it.
var errRedisNewer = errors.New("idempotency: redis: record was written by a newer version of this package")

// newRedisHeader returns the header of a first claim.
func newRedisHeader(c Claim) (redisHeader, error) {
	lifetime, err := redisTTL(c.Retention)
	if err != nil {
		return redisHeader{}, err
	}
	lease, err := redisTTL(c.Lease)
	if err != nil || lease > redisMaxLease || lease > lifetime {
		return redisHeader{}, fmt.Errorf("idempotency: redis: impossible lease %v within %v", c.Lease, c.Retention)
	}
	if c.Owner == (Owner{}) {
		return redisHeader{}, errors.New("idempotency: redis: claim without an owner")
	}
	return redisHeader{
		state: StateClaimed, hold: c.Hold, attempt: 1, lease: lease, lifetime: lifetime,
		fingerprint: c.Fingerprint, owner: c.Owner,
	}, nil
}

// encode returns the stored form.
func (h *redisHeader) encode() []byte {
	b := make([]byte, 0, redisHeaderSize)
	var flags byte
	if h.hold {
		flags |= redisFlagHold
	}
	if h.detached {
		flags |= redisFlagDetached
	}
	b = append(b, redisHeaderVersion, byte(h.state), flags)
	b = binary.BigEndian.AppendUint32(b, h.attempt)
	b = binary.BigEndian.AppendUint32(b, uint32(h.lease.Milliseconds()))
	b = append(b, redisLifetime(h.lifetime)...)
	b = append(b, h.fingerprint[:]...)
	return append(b, h.owner[:]...)
}

// redisLifetime returns a lifetime as a header holds it.
func redisLifetime(d time.Duration) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(d.Milliseconds()))[3:]
}

// parseRedisHeader reads the stored form.
func parseRedisHeader(s string) (redisHeader, error) {
	if len(s) > 0 && s[0] > redisHeaderVersion {
		return redisHeader{}, errRedisNewer
	}
	if len(s) != redisHeaderSize || s[0] != redisHeaderVersion {
		return redisHeader{}, fmt.Errorf("%w: redis: header of %d bytes", ErrCorrupt, len(s))
	}
	b := []byte(s)
	h := redisHeader{
		state:    State(b[1]),
		hold:     b[2]&redisFlagHold != 0,
		detached: b[2]&redisFlagDetached != 0,
		attempt:  binary.BigEndian.Uint32(b[3:]),
		lease:    time.Duration(binary.BigEndian.Uint32(b[7:])) * time.Millisecond,
		// The three bytes before the lifetime belong to the lease.
		lifetime:    time.Duration(binary.BigEndian.Uint64(b[8:])&(1<<40-1)) * time.Millisecond,
		fingerprint: Fingerprint(b[16:]),
		owner:       Owner(b[48:]),
	}
	if h.state < StateClaimed || h.state > StateHeld || b[2] > redisFlagHold|redisFlagDetached || h.attempt == 0 {
		return redisHeader{}, fmt.Errorf("%w: redis: impossible header", ErrCorrupt)
	}
	return h, nil
}

// record returns what the header says when the record expires in ttl. origin is the
// field of that name, which is empty as long as the header tells it.
func (h *redisHeader) record(ttl time.Duration, origin string) (Record, error) {
	r := Record{
		State:       h.state,
		Attempt:     int(h.attempt),
		Fingerprint: h.fingerprint,
		Origin:      h.owner,
		TTL:         ttl,
		// The server's clock may have been set back: then ttl is above the lifetime.
		Age: max(h.lifetime-ttl, 0),
	}
	switch {
	case len(origin) == len(r.Origin):
		r.Origin = Owner([]byte(origin))
	case origin != "" || h.attempt != 1:
		return Record{}, fmt.Errorf("%w: redis: origin of %d bytes", ErrCorrupt, len(origin))
	}
	if h.state == StateClaimed {
		r.Lease = max(h.lease-r.Age, 0)
	}
	return r, nil
}

// parseClaim reads what lua/claim.lua returned for the claim h. When the answer is in a
// field of its own, its name is returned too.
func (h *redisHeader) parseClaim(reply []string) (r Record, detached string, err error) {
	if len(reply) == 2 {
		if reply[1] != string(h.owner[:]) {
			return r, "", errors.New("idempotency: redis: claim was answered with that of another")
		}
		r, err = h.record(h.lifetime, "")
		r.Mine = true
		return r, "", err
	}
	if len(reply) < 3 {
		return r, "", fmt.Errorf("idempotency: redis: claim was answered with %d values", len(reply))
	}
	found, err := parseRedisHeader(reply[1])
	if err != nil {
		return r, "", err
	}
	ttl, err := parseRedisTTL(reply[0])
	if err != nil {
		return r, "", err
	}
	if r, err = found.record(ttl, reply[2]); err != nil {
		return r, "", err
	}
	if r.Fingerprint != h.fingerprint {
		found.holdLapsed(&r)
		return r, "", nil
	}
	switch {
	case found.state == StateCompleted && found.detached:
		detached = found.answerField()
	case found.state == StateCompleted && len(reply) > 3:
		r.Answer = []byte(reply[3])
	case found.state == StateClaimed && found.owner == h.owner:
		r.Mine = true
		for i := 5; i < len(reply); i += 2 {
			if r.Steps == nil {
				r.Steps = make(map[string][]byte, (len(reply)-4)/2)
			}
			r.Steps[reply[i-1]] = []byte(reply[i])
		}
	}
	return r, detached, nil
}

// parseRedisRecord reads a whole record.
func parseRedisRecord(ttl time.Duration, fields map[string]string) (Record, error) {
	h, err := parseRedisHeader(fields["m"])
	if err != nil {
		return Record{}, err
	}
	r, err := h.record(ttl, fields["o"])
	if err != nil {
		return Record{}, err
	}
	h.holdLapsed(&r)
	if h.state == StateCompleted {
		field := "r"
		if h.detached {
			field = h.answerField()
		}
		answer, ok := fields[field]
		if !ok {
			return Record{}, fmt.Errorf("%w: redis: answer is missing", ErrCorrupt)
		}
		r.Answer = []byte(answer)
	}
	for field, value := range fields {
		if name, ok := strings.CutPrefix(field, "s:"); ok {
			if r.Steps == nil {
				r.Steps = make(map[string][]byte)
			}
			r.Steps[name] = []byte(value)
		}
	}
	return r, nil
}

// answerField is the name of the field that a detached answer is in.
func (h *redisHeader) answerField() string { return "r:" + string(h.owner[:]) }

// holdLapsed reports a lapsed claim that says hold as held. The script that claims
// writes that down; whoever else reads the record only sees it.
func (h *redisHeader) holdLapsed(r *Record) {
	if h.state == StateClaimed && h.hold && r.Lease == 0 {
		r.State = StateHeld
	}
}

// parseRedisTTL reads an expiry in milliseconds. A record always has one.
func parseRedisTTL(s string) (time.Duration, error) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 0 || ms > most {
		return 0, fmt.Errorf("%w: redis: expiry %.20q", ErrCorrupt, s)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// redisTTL returns d in whole milliseconds, rounded up, so that a positive duration
// never becomes an expiry of zero, which would delete.
func redisTTL(d time.Duration) (time.Duration, error) {
	if d <= 0 || d > redisMaxLifetime {
		return 0, fmt.Errorf("idempotency: redis: cannot keep a record for %v", d)
	}
	if whole := d.Truncate(time.Millisecond); whole < d {
		return whole + time.Millisecond, nil
	}
	return d, nil
}
