package storetest

import (
	"bytes"
	"context"
	"time"

	"example.com/idempotency/store"
)

// How the owner of a claim renews and ends it.

// owned returns the record if o is its owner and it is in one of the states. method is the
// name of the method that asks.
func (s *naiveStore) owned(ctx context.Context, method, key string, o store.Owner, states ...store.State) (*naiveRecord, error) {
	if err := ctx.Err(); err != nil && !s.is(method+" ignores its context") {
		return nil, err
	}
	r := s.find(key)
	if r == nil {
		if s.is(method + " of an absent record makes one") {
			s.insert(key, store.Claim{Owner: o, Fingerprint: payload, Lease: lease, Retention: retention})
			r = s.find(key)
		} else {
			return nil, store.ErrNotOwner
		}
	}
	trusted := s.is(method+" does not look at the owner") ||
		s.is(method+" trusts an owner of the past") && r.first == o
	lost := r.byHand && !s.is("Resolve leaves the owner its claim")
	if (r.Owner != o || lost) && !trusted {
		return nil, store.ErrNotOwner
	}
	if s.is(method+" is refused after the lease") && r.lapsed() {
		return nil, store.ErrNotOwner
	}
	if (method == "Release" || method == "Hold") && r.byLapse && !s.is("what lapsed stays held") {
		return r, nil
	}
	for _, state := range states {
		if r.State == state && !s.is(method+" is refused when "+state.String()) {
			return r, nil
		}
	}
	if s.is(method+" does not look at the state") || s.is(method+" is accepted when "+r.State.String()) {
		return r, nil
	}
	return nil, store.ErrNotOwner
}

func (s *naiveStore) Renew(ctx context.Context, key string, o store.Owner) error {
	s.hang(ctx, "Renew")
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.owned(ctx, "Renew", key, o, store.Claimed)
	if err != nil || s.is("Renew does nothing") {
		return err
	}
	now := time.Now()
	r.State = store.Claimed
	r.leaseEnd, r.touched = now.Add(r.lease), now
	if !s.is("Renew leaves the retention") {
		r.expires = now.Add(r.retention)
	}
	return nil
}

func (s *naiveStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	s.hang(ctx, "Complete")
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.owned(ctx, "Complete", key, o, store.Claimed, store.Held, store.Completed)
	if err != nil {
		return err
	}
	s.complete(key, r, c)
	return nil
}

// complete completes a record.
func (s *naiveStore) complete(key string, r *naiveRecord, c store.Completion) {
	if r.State == store.Completed {
		if s.is("a second Complete restarts the TTL") {
			r.expires = time.Now().Add(c.TTL)
		}
		if s.is("a second Complete overwrites the answer") {
			r.Answer = c.Answer
		}
		return
	}
	answer, ttl := s.own("Complete", c.Answer), c.TTL
	if s.is("the TTL runs from the claim") {
		ttl -= time.Since(r.leaseEnd.Add(-r.lease))
	}
	if s.is("a short TTL is lost") {
		ttl = max(ttl, r.retention)
	}
	s.settle(key, r, store.Completed, ttl)
	r.Answer, r.Status = answer, c.Status
	if s.is("Complete forgets the status") {
		r.Status = 0
	}
	switch {
	case s.is("an empty answer is none") && len(answer) == 0:
		r.State = store.Released
	case s.is("an empty answer is nil") && len(answer) == 0:
		r.Answer = nil
	case s.is("an answer ends at NUL"):
		r.Answer, _, _ = bytes.Cut(answer, []byte{0})
	case s.is("an answer is cut at 1 MiB"):
		r.Answer = answer[:min(len(answer), 1<<20)]
	case s.is("an answer is cut at 32 KiB"):
		r.Answer = answer[:min(len(answer), 32<<10)]
	case s.is("memory is used again while it is read") && len(answer) == len("answer"):
		if string(answer) == "answer" {
			s.reused = bytes.Clone(answer)
		} else {
			copy(s.reused, answer)
		}
		r.Answer = s.reused
	}
}

func (s *naiveStore) Release(ctx context.Context, key string, o store.Owner, rel store.Release) error {
	s.hang(ctx, "Release")
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.owned(ctx, "Release", key, o, store.Claimed, store.Released)
	if err != nil {
		return err
	}
	if s.is("Release deletes the record") {
		delete(s.records, key)
		return nil
	}
	if r.State == store.Released && !s.is("a second Release starts anew") {
		return nil
	}
	kept := r.retention
	if s.is("Release leaves the retention") {
		kept = time.Until(r.expires)
	}
	r.blank = r.blank && rel.Undone || s.is("what is released is blank")
	r.unbound = s.unbinds(r, rel)
	if r.blank || s.is("Undone need not be said") {
		if rel.Keep > 0 && !s.is("Keep is ignored") {
			kept = min(kept, rel.Keep)
		}
		if s.is("Keep is longer than the retention") {
			kept = rel.Keep
		}
	}
	s.settle(key, r, store.Released, kept)
	return nil
}

func (s *naiveStore) Hold(ctx context.Context, key string, o store.Owner, note []byte) error {
	s.hang(ctx, "Hold")
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.owned(ctx, "Hold", key, o, store.Claimed, store.Held)
	if err != nil {
		return err
	}
	kept := r.retention
	if s.is("Hold leaves the retention") {
		kept = time.Until(r.expires)
	}
	switch {
	case r.State == store.Held && !r.byLapse && !s.is("a second Hold leaves another note"), s.is("Hold leaves the note"):
	case s.is("Hold adds a note"):
		r.Notes = store.AppendNote(r.Notes, note)
	default:
		r.Notes = store.ReplaceNote(r.Notes, note)
	}
	s.settle(key, r, store.Held, kept)
	return nil
}

// settle puts the record into a state in which no run is in flight, and wakes the watchers.
func (s *naiveStore) settle(key string, r *naiveRecord, state store.State, kept time.Duration) {
	r.State, r.touched, r.expires = state, time.Now(), time.Now().Add(kept)
	r.byLapse = r.byLapse && s.is("a lapsed hold stays one of nobody") && state == store.Held
	s.enter(r)
	if s.is(state.String() + " wakes nobody") {
		return
	}
	for _, c := range s.watchers[key] {
		if c == nil {
			continue
		}
		select {
		case c <- struct{}{}:
		default:
			if s.is("settling waits for the watcher") {
				s.yield(time.Hour)
			}
		}
		if s.is("only one watcher is woken") {
			break
		}
	}
	if s.is("watchers are woken once") {
		delete(s.watchers, key)
	}
}
