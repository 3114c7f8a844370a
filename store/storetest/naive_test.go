package storetest

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/idempotency/store"
)

// A naiveStore keeps the contract in the plainest way, apart from its bug. The kit's own
// test runs the cases on it.
type naiveStore struct {
	bug      string
	mu       sync.Mutex
	records  map[string]*naiveRecord
	watchers map[string][]chan struct{}
	last     int // place in the index
	cursors  map[string]bool
	rows     map[string]bool
	givenUp  []string // rows, which one bug remembers
	reused   []byte   // the memory of an answer, which one bug uses again
}

type naiveRecord struct {
	store.Record // Mine, Lease, TTL and Age are filled in by see.

	first     store.Owner // the owner of the first claim
	lease     time.Duration
	retention time.Duration
	hold      bool
	holdEnds  bool
	byHand    bool   // settled by Resolve: the owner has lost the claim
	byLapse   bool   // held because the lease ended
	blank     bool   // nothing was done under it
	given     []byte // the memory of a note, which one bug reads again
	unbound   bool   // the next payload gets it, or the last one did
	touched   time.Time
	leaseEnd  time.Time
	expires   time.Time
	entered   int  // its place in the index, if it is there
	twice     bool // it is there twice
	tags      []store.Tag
	tagged    time.Time
}

// naive returns a harness of naive stores that have the bug. They live in a bubble.
func naive(bug string) Harness {
	return Harness{
		New: func(testing.TB) (store.Store, func(time.Duration)) {
			return &naiveStore{
				bug:      bug,
				records:  make(map[string]*naiveRecord),
				watchers: make(map[string][]chan struct{}),
				rows:     make(map[string]bool),
				cursors:  make(map[string]bool),
			}, time.Sleep
		},
		Transactions: func(_ testing.TB, s store.Store) Transactions { return naiveTransactions{s.(*naiveStore)} },
	}
}

// is reports whether the store has the bug.
func (s *naiveStore) is(bug string) bool { return s.bug == bug }

// find returns the record, or nil if there is none.
func (s *naiveStore) find(key string) *naiveRecord {
	if s.is("one record for all keys") {
		key = ""
	}
	if s.is("a name that is not base64url is lost") && strings.HasPrefix(key, ".") {
		return nil
	}
	r := s.records[key]
	if r == nil || r.expired(s) {
		return nil
	}
	return r
}

func (r *naiveRecord) expired(s *naiveStore) bool {
	switch {
	case s.is("an expired record lives until it is swept") && len(s.records) > 100,
		s.is("the TTL never ends") && r.State == store.Completed,
		s.is("a claim never expires") && r.State == store.Claimed,
		s.is("a release never expires") && r.State == store.Released,
		s.is("a released claim never expires") && r.State == store.Released && r.hold:
		return false
	case r.endless():
		return (s.is("a lapsed hold ends") && r.hold || s.is("a hold by the finder ends") && !r.hold) &&
			time.Since(r.touched) >= r.retention
	}
	return !time.Now().Before(r.expires)
}

// endless reports whether the record has no end of its own.
func (r *naiveRecord) endless() bool {
	return !r.holdEnds && (r.State == store.Held || r.State == store.Claimed && r.hold)
}

func (r *naiveRecord) lapsed() bool {
	return r.State == store.Claimed && !time.Now().Before(r.leaseEnd)
}

// see returns the record as a caller sees it.
func (s *naiveStore) see(r *naiveRecord) store.Record {
	out := r.Record
	now := time.Now()
	if r.lapsed() && r.hold && !s.is("Get does not see a lapsed hold") {
		out.State = store.Held
	}
	if out.State == store.Claimed || s.is("a settled record has a lease") {
		out.Lease = r.leaseEnd.Sub(now)
	}
	if r.given != nil {
		out.Notes = store.AppendNote(nil, r.given)
		if s.is("decision keeps what it was given") {
			out.Notes = store.AppendDecision(nil, r.given)
		}
	}
	out.TTL, out.Age = r.expires.Sub(now), now.Sub(r.touched)
	if r.endless() {
		out.TTL = store.Forever
	}
	if s.is("times are not reported") {
		out.TTL, out.Age = 0, 0
	}
	if s.is("in flight reports the whole lease") && out.Lease > 0 {
		out.Lease = r.lease
	}
	out.Answer, out.Steps, out.Status, out.Lapsed = nil, nil, 0, false
	if out.State == store.Completed {
		out.Answer, out.Status, out.Size = r.Answer, r.Status, int64(len(r.Answer))
	}
	if s.is("the size is not told") {
		out.Size = 0
	}
	return out
}

// grant gives the claim to the owner, as the record's current attempt.
func (s *naiveStore) grant(r *naiveRecord, c store.Claim) store.Record {
	now := time.Now()
	if r.Attempt == 1 || !s.is("a takeover keeps the old durations") {
		r.lease, r.retention = c.Lease, c.Retention
	}
	r.State, r.Owner, r.hold, r.byHand = store.Claimed, c.Owner, c.Hold, false
	r.holdEnds = c.HoldEnds && !s.is("HoldEnds is ignored") || s.is("a hold always ends")
	r.touched, r.leaseEnd, r.expires = now, now.Add(r.lease), now.Add(r.retention)
	if s.is("the lease is the retention") {
		r.leaseEnd = r.expires
	}
	s.enter(r)
	return s.mine(r)
}

func (s *naiveStore) mine(r *naiveRecord) store.Record {
	out := s.see(r)
	out.Mine, out.Lapsed = true, r.Lapsed && !s.is("a takeover is not told")
	out.Blank = r.blank || s.is("every claim is told that nothing was done")
	if r.Attempt > 1 {
		out.Steps = maps.Clone(r.Steps)
	}
	return out
}

func (s *naiveStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	s.hang(ctx, "Claim")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.is("a claim ignores its context") {
		ctx = context.Background()
	}
	if err := ctx.Err(); err != nil {
		if s.is("a cancelled claim is held by nobody") {
			s.insert(key, store.Claim{Fingerprint: c.Fingerprint, Lease: c.Lease, Retention: c.Retention})
		}
		return store.Record{}, err
	}
	r := s.find(key)
	if r == nil {
		if c.Watch && s.is("one who waits gets no new key") {
			return store.Record{}, nil
		}
		if s.is("claim looks first and writes afterwards") {
			s.yield(time.Nanosecond)
		}
		return s.insert(key, c), nil
	}
	if s.is("reading prolongs the TTL") && r.State == store.Completed {
		r.expires = time.Now().Add(ttl)
	}
	if s.is("every claim leaves its sealed key") {
		s.keepSealedKey(r, c)
	}
	if s.is("every claim leaves its tags") {
		s.tag(r, c)
	}
	if s.is("every claim leaves its note") && r.Owner != c.Owner {
		s.note(r, c)
	}
	unbound := r.unbound && r.State == store.Released && (r.Owner != c.Owner || s.is("a delayed claim revives what is unbound"))
	mismatch := r.Fingerprint != c.Fingerprint && !unbound
	if mismatch {
		if out, done := s.mismatch(r, c); done {
			return out, nil
		}
	}
	switch {
	case s.is("the owner does not know its own claim"):
	case r.State == store.Claimed && r.Owner == c.Owner && (!r.lapsed() || !r.hold || !s.is("a repeated claim is held")):
		switch {
		case s.is("a repeated claim is another attempt"):
			r.Attempt++
		case s.is("a repeated claim leaves another note"):
			s.note(r, c)
		case s.is("a repeated claim is no takeover"):
			r.Lapsed = false
		case s.is("a repeated claim has no steps"):
			out := s.see(r)
			out.Mine = true
			return out, nil
		case s.is("a repeated claim has no lease") && r.lapsed(),
			s.is("a repeated claim has the lease of the first") && !r.lapsed():
			return s.mine(r), nil
		}
		r.blank = r.blank && !s.is("a repeated claim is not blank")
		return s.grant(r, c), nil
	}
	if r.lapsed() && s.holds(r, c) {
		s.markLapsed(r)
		r.State, r.Owner, r.byLapse = store.Held, s.keepOwner(r.Owner), true
		s.enter(r)
	}
	if s.is("held lapses") && r.State == store.Held && time.Since(r.touched) > r.lease {
		r.State = store.Released
	}
	was := r.Owner == c.Owner && (!r.byHand || s.is("Resolve remembers who lost the claim"))
	free := r.State == store.Released && (!was || s.is("a delayed claim revives a release")) || unbound ||
		r.State == store.Held && r.Owner == c.Owner && s.is("a delayed claim revives a hold") ||
		r.State == store.Claimed && r.lapsed() ||
		r.State == store.Claimed && s.is("takeover a moment early") && time.Until(r.leaseEnd) < 50*time.Second
	if !free || s.keepsWaiting(r, c) {
		return s.see(r), nil
	}
	if s.is("takeover looks first and writes afterwards") && r.State == store.Claimed ||
		s.is("a released key is given to all who look") && r.State == store.Released ||
		s.is("an unbound key is given to all who look") && unbound {
		s.yield(time.Nanosecond)
	}
	return s.takeOver(r, c), nil
}

func (s *naiveStore) insert(key string, c store.Claim) store.Record {
	if s.is("one record for all keys") {
		key = ""
	}
	r := &naiveRecord{}
	r.Attempt, r.Fingerprint, r.first, r.blank = 1, c.Fingerprint, c.Owner, true
	old := s.records[key]
	if old != nil {
		s.outlive(r, old)
	}
	s.note(r, c)
	if s.is("keys are cut to one byte") {
		for k, old := range s.records {
			if k != key && k[0] == key[0] && !old.expired(s) {
				return s.see(old)
			}
		}
	}
	s.records[key] = r
	return s.grant(r, c)
}

func (s *naiveStore) takeOver(r *naiveRecord, c store.Claim) store.Record {
	released := r.State == store.Released
	r.blank = r.blank && (released || s.is("a lapse leaves a record blank")) && !s.is("only the first attempt is blank")
	s.forgetTags(r, c)
	if !s.is("an unbound record is bound to the first payload again") {
		r.Fingerprint = c.Fingerprint
	}
	r.unbound = r.unbound && released
	if !s.is("the attempt is constant") && (!s.is("a release does not count as an attempt") || !released) {
		r.Attempt++
	}
	if s.is("takeover forgets the steps") && !released || s.is("a release forgets the steps") && released {
		r.Steps = nil
	}
	r.Lapsed = !released || r.Lapsed && s.is("a takeover is told for ever")
	s.note(r, c)
	return s.grant(r, c)
}

// mismatch answers a claim with another fingerprint. It reports false if the bug is that
// the store treats such a claim like any other.
func (s *naiveStore) mismatch(r *naiveRecord, c store.Claim) (store.Record, bool) {
	switch {
	case s.is("a mismatch takes over when lapsed") && r.lapsed(),
		s.is("a mismatch gets a released key") && r.State == store.Released,
		s.is("a mismatch holds a lapsed claim") && r.lapsed():
		return store.Record{}, false
	case s.is("a mismatch renews the lease") && r.State == store.Claimed:
		r.leaseEnd = time.Now().Add(r.lease)
	case s.is("a mismatch prolongs the answer") && r.State == store.Completed:
		r.expires = time.Now().Add(ttl)
	case s.is("a mismatch prolongs the hold") && r.State == store.Held:
		r.expires = time.Now().Add(r.retention)
	case s.is("a mismatch changes the fingerprint"):
		r.Fingerprint = c.Fingerprint
	}
	return s.see(r), true
}

func (s *naiveStore) holds(r *naiveRecord, c store.Claim) bool {
	return r.hold && !s.is("the record's Hold is ignored") || c.Hold && !s.is("the finder's Hold is ignored")
}

func (s *naiveStore) keepOwner(o store.Owner) store.Owner {
	if s.is("a lapsed hold forgets its owner") {
		return store.Owner{}
	}
	return o
}
