package redisstore

// The index of a store: which records are held, or claimed by a claim that says Hold. It is
// one sorted set beside the records. A claim enters it when it has been granted, with one more
// round trip, because a script touches one key only. A claim that is settled leaves it when
// another one enters, or when somebody reads the index.

import (
	"context"
	"fmt"
	"sync"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

const (
	// maxSettled is how many settled claims wait for another claim to take them out of the
	// index. Readers take out what is above that.
	maxSettled = 1000
	// leavingAtOnce is how many of them leave with one claim.
	leavingAtOnce = 100
)

// settledClaims are claims of this process that have to leave the index.
type settledClaims struct {
	mu     sync.Mutex
	claims map[redisproto.Member]struct{}
}

// add notes that a claim has been settled.
func (s *settledClaims) add(m redisproto.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = make(map[redisproto.Member]struct{})
	}
	if len(s.claims) < maxSettled {
		s.claims[m] = struct{}{}
	}
}

// take returns some of the claims for the call that enters m, and forgets them.
func (s *settledClaims) take(m redisproto.Member) (some []redisproto.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, m) // settled once, and claimed again by the same owner
	for m := range s.claims {
		if len(some) == leavingAtOnce {
			break
		}
		some = append(some, m)
		delete(s.claims, m)
	}
	return some
}

// An index is that of one store.
type index struct {
	server  *server
	name    string
	settled settledClaims
}

// enterFor enters a claim in the index: the caller's own if it was granted and says Hold, or one
// that has not said Hold and that the caller, who does, has found lapsed.
func (x *index) enterFor(ctx context.Context, key string, c store.Claim, r redisproto.Record) error {
	switch {
	case c.Hold && r.Mine:
		return x.enter(ctx, key, c.Owner, true)
	case c.Hold && r.Found:
		// If it fails, the next claim that finds the record tries again. The caller may not run
		// either way.
		_ = x.enter(ctx, key, r.Owner, false)
	}
	return nil
}

// leave notes that a claim has been settled, if the result of the script says that it was entered.
func (x *index) leave(key string, o store.Owner, result int64) {
	if result == redisproto.Entered {
		x.settled.add(redisproto.NewMember(o, key))
	}
}

// enter adds a claim to the index. If anew is set, it goes to the end if it is there already. An
// error never says that the claim was refused, because it was granted.
func (x *index) enter(ctx context.Context, key string, o store.Owner, anew bool) error {
	m := redisproto.NewMember(o, key)
	call := redisproto.Enter(x.name, m, anew, x.settled.take(m))
	err := x.server.update(ctx, call, false, errNoResult)
	if err != nil && refusedClaim(err) {
		return fmt.Errorf("idempotency: redis: the claim was not entered in the index: %v", err) //nolint:errorlint // see above
	}
	return err
}
