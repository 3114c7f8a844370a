package storetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"example.com/idempotency/store"
)

// The optional interfaces of a naiveStore.

// ObeysContext promises what a store with the bug that a method hangs does not keep.
func (s *naiveStore) ObeysContext() bool { return true }

// hang keeps a call that has a deadline for an hour, if that is the bug of the store.
func (s *naiveStore) hang(ctx context.Context, method string) {
	if _, ok := ctx.Deadline(); ok && s.is(hangs(method)) {
		time.Sleep(time.Hour) // of the bubble, like all sleeps here
	}
}

func (s *naiveStore) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	s.hang(ctx, "Watch")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	capacity := 1
	if s.is("a wakeup is lost unless it is waited for") {
		capacity = 0
	}
	c := make(chan struct{}, capacity)
	if s.is("watching begins late") {
		go func() {
			time.Sleep(time.Nanosecond) // of the bubble
			s.mu.Lock()
			defer s.mu.Unlock()
			s.watchers[key] = append(s.watchers[key], c)
		}()
		return c, func() {}, nil
	}
	s.watchers[key] = append(s.watchers[key], c)
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, w := range s.watchers[key] {
			if w == c || s.is("stopping one watcher stops all") {
				s.watchers[key][i] = nil
			}
		}
	}, nil
}

// keepsWaiting reports whether the claim of one who waits is not granted.
func (s *naiveStore) keepsWaiting(r *naiveRecord, c store.Claim) bool {
	if r.State != store.Released {
		return c.Watch && s.is("one who waits gets no lapsed key")
	}
	return c.Watch && !s.is("one who waits gets a released key") && (!r.unbound || !s.is("one who waits gets an unbound key"))
}

func (s *naiveStore) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	s.hang(ctx, "SaveStep")
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.owned(ctx, "SaveStep", key, o, store.Claimed)
	if err != nil {
		return err
	}
	if r.Steps == nil {
		r.Steps = make(map[string][]byte)
	}
	if _, ok := r.Steps[name]; ok && s.is("a step cannot be replaced") {
		return nil
	}
	if name == "owner" && s.is("a step overwrites a field of the record") {
		copy(r.Owner[:], value)
	}
	if s.is("a step renews the lease") {
		r.leaseEnd = time.Now().Add(r.lease)
	}
	if s.is("a step looks first and writes afterwards") {
		seen := maps.Clone(r.Steps)
		s.yield(time.Nanosecond)
		r.Steps = seen
	}
	r.Steps[name] = s.own("SaveStep", value)
	r.blank = r.blank && s.is("a step leaves a record blank")
	return nil
}

func (s *naiveStore) Get(ctx context.Context, key string) (store.Record, error) {
	s.hang(ctx, "Get")
	r, err := s.look(key)
	if !s.is("Get carries the answer") {
		r.Answer = nil
	}
	return r, err
}

func (s *naiveStore) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	s.hang(ctx, "GetAnswer")
	r, err := s.look(key)
	if s.is("GetAnswer is Get") {
		r.Answer = nil
	}
	if err != nil && s.is("GetAnswer of nothing is success") {
		return r, nil
	}
	return r, err
}

// look reads a record with its answer.
func (s *naiveStore) look(key string) (store.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(key)
	if r == nil && s.is("Get returns an empty record") {
		return store.Record{}, nil
	}
	if r == nil {
		return store.Record{}, store.ErrNotFound
	}
	if s.is("Get takes over") && r.lapsed() {
		s.takeOver(r, store.Claim{Fingerprint: r.Fingerprint, Lease: r.lease, Retention: r.retention})
	}
	if s.is("Get prolongs the record") {
		r.expires = time.Now().Add(r.retention)
	}
	out := s.see(r)
	if !s.is("Get leaves out the steps") {
		out.Steps = maps.Clone(r.Steps)
	}
	return out, nil
}

func (s *naiveStore) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	s.hang(ctx, "Resolve")
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(key)
	if r == nil && s.is("Resolve of nothing is success") {
		return nil
	}
	if r == nil {
		return store.ErrNotFound
	}
	if r.Attempt != seen.Attempt && !s.is("Resolve does not look at the attempt") ||
		r.Owner != seen.Owner && !s.is("Resolve does not look at the owner") ||
		seen.State != store.Held && !s.is("Resolve does not look at what was seen") {
		return store.ErrChanged
	}
	c := settled.Completion
	state, kept, answer := store.Released, r.retention, []byte(nil)
	if c != nil && (len(c.Answer) > 0 || !s.is("Resolve takes an empty answer for none")) {
		state, kept, answer = store.Completed, c.TTL, s.own("Resolve", c.Answer)
	}
	byHand := r.byHand || s.is("Resolve takes what a run did for a repeated call")
	if r.State == state && byHand && bytes.Equal(r.Answer, answer) && s.undone(r, settled.Undone) && !s.is("Resolve cannot be repeated") && s.decided(r, settled.Note) {
		if s.is("a repeated decision is another one") {
			s.decide(r, settled.Note)
		}
		return nil
	}
	held := r.State == store.Held || r.lapsed() && r.hold && !s.is("Resolve does not see a lapsed hold")
	if !held && !s.is("Resolve does not look at the state") {
		return store.ErrChanged
	}
	if s.is("completing by hand fails") && c != nil || s.is("releasing by hand fails") && c == nil {
		return store.ErrChanged
	}
	if s.is("Resolve with an answer wakes nobody") && c != nil ||
		s.is("Resolve without an answer wakes nobody") && c == nil {
		delete(s.watchers, key)
	}
	if s.is("a resolution forgets the steps") || s.is("Resolve undoes all steps") && settled.Undone != nil {
		r.Steps = nil
	}
	if s.is("a refused decision is kept") {
		s.decide(r, settled.Note)
	}
	if !s.undo(r, settled.Undone) {
		return store.ErrChanged
	}
	s.decide(r, settled.Note)
	s.settle(key, r, state, kept)
	r.Answer, r.byHand = answer, true
	if c != nil && !s.is("Resolve forgets the status") {
		r.Status = c.Status
	}
	r.blank = r.blank && s.is("a resolution leaves a record blank")
	return nil
}

// undone reports whether the record has none of these steps.
func (s *naiveStore) undone(r *naiveRecord, steps map[string][]byte) bool {
	for name := range steps {
		if r.Steps[name] != nil && !s.is("Resolve does not look for the steps when it is repeated") {
			return false
		}
	}
	return !s.is("Resolve cannot be repeated without its steps") || len(steps) == 0
}

// undo takes the steps away if all of them are what the caller saw.
func (s *naiveStore) undo(r *naiveRecord, steps map[string][]byte) bool {
	for name, value := range steps {
		old, ok := r.Steps[name]
		switch {
		case s.is("Resolve leaves the undone steps"), s.is("Resolve does not compare the steps"):
		case s.is("Resolve takes a missing step for an empty one") && !ok && len(value) == 0:
		case s.is("Resolve is half done") && bytes.Equal(old, value):
			delete(r.Steps, name)
		case !ok, !bytes.Equal(old, value):
			return false
		}
	}
	for name := range steps {
		if !s.is("Resolve leaves the undone steps") {
			delete(r.Steps, name)
		}
	}
	return true
}

func (s *naiveStore) Forget(ctx context.Context, key string, seen store.Seen) error {
	s.hang(ctx, "Forget")
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(key)
	if r == nil && s.is("Forget of nothing is an error") {
		return store.ErrNotFound
	}
	if r == nil {
		return nil
	}
	state := s.see(r).State
	asCorrupt := seen.State == store.Corrupt && s.is("Forget takes everything for corrupt")
	switch {
	case asCorrupt:
	case r.Attempt != seen.Attempt && !s.is("Forget does not look at the attempt"),
		r.Owner != seen.Owner && !s.is("Forget does not look at the owner"),
		seen.State != state && !s.is("Forget does not look at the state"),
		r.State == store.Claimed && !r.lapsed() && !s.is("Forget takes a live claim"),
		r.State != store.Held && s.is("Forget takes only what is held"):
		return store.ErrChanged
	case s.is("Forget keeps the record"):
		r.State = store.Released
		return nil
	}
	delete(s.records, key)
	return nil
}

// outlive gives a new record what an expired one has left.
func (s *naiveStore) outlive(r, old *naiveRecord) {
	if s.is("steps outlive their record") {
		r.Steps = old.Steps
	}
	if s.is("decisions outlive their record") {
		for note := range store.EachDecision(old.Notes) {
			r.Notes = store.AppendDecision(r.Notes, note)
		}
	}
	if s.is("notes outlive their record") {
		r.Notes = old.Notes
	}
	if s.is("tags outlive their record") {
		r.tags = old.tags
	}
	if s.is("sealed keys outlive their record") {
		r.SealedKey = old.SealedKey
	}
}

// keepSealedKey keeps the sealed key of a claim, if it has one.
func (s *naiveStore) keepSealedKey(r *naiveRecord, c store.Claim) {
	sealed := c.SealedKey
	switch {
	case s.is("sealed keys are not kept"), len(sealed) == 0 && !s.is("a claim without a sealed key takes it away"):
		return
	case s.is("a sealed key has 64 bytes at most"):
		sealed = sealed[:min(len(sealed), 64)]
	}
	r.SealedKey = s.own("sealed key", sealed)
}

// note keeps what a claim leaves for operators.
func (s *naiveStore) note(r *naiveRecord, c store.Claim) {
	s.keepSealedKey(r, c)
	s.tag(r, c)
	if s.is("notes are not kept") {
		return
	}
	if r.Label == "" || !s.is("the label of the first claim stays") {
		r.Label = c.Label
	}
	note := c.Note
	switch {
	case len(note) == 0:
		return
	case s.is("a note ends at NUL"):
		note, _, _ = bytes.Cut(note, []byte{0})
	case s.is("a note has 32 bytes at most"):
		note = note[:min(len(note), 32)]
	}
	if s.is("only the last note is kept") {
		r.Notes = nil
	}
	if s.is("a note overwrites what was handed out") && len(r.Notes) > 0 {
		copy(r.Notes[1:], note)
	}
	if s.is("notes are kept without end") {
		r.Notes = append(append(slices.Clip(r.Notes), byte(len(note))), note...)
		return
	}
	if s.is("note keeps what it was given") {
		r.given = note
	}
	r.Notes = store.AppendNote(r.Notes, note)
}

// own returns a copy of what a call was given.
func (s *naiveStore) own(given string, b []byte) []byte {
	if s.is(given + " keeps what it was given") {
		return b
	}
	return bytes.Clone(b)
}

// yield lets other goroutines in at a moment when a store must not.
func (s *naiveStore) yield(d time.Duration) {
	s.mu.Unlock()
	time.Sleep(d) // of the bubble
	s.mu.Lock()
}

// unbinds reports whether a release of what is blank leaves the record unbound.
func (s *naiveStore) unbinds(r *naiveRecord, rel store.Release) bool {
	switch {
	case s.is("Unbind is ignored"), !r.blank && !s.is("Undone need not be said"):
		return false
	case rel.Unused && !s.is("Unused is ignored"):
		return r.unbound || s.is("what is not used is unbound")
	default:
		return rel.Unbind || r.unbound && s.is("what was unbound stays so")
	}
}

// markLapsed is for bugs: a record that becomes held stays as it is.
func (s *naiveStore) markLapsed(r *naiveRecord) {
	r.blank = r.blank && !s.is("what lapsed is not blank")
	r.unbound = r.unbound && !s.is("what lapsed is bound")
}
