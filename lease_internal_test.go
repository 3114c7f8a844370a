package idempotency

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency/store"
	"github.com/stretchr/testify/require"
)

// The timer of the renewals fires, and before it gets to run its lease is found again and
// ended. It must not renew what its renewer is lent to next, or to nobody.
func TestRenewalThatHasJustFiredIsOfThePast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := New(NewMemoryStore(), SharedScope)
		require.NoError(t, err)
		for n := range 3000 { // who is first is for the scheduler to say
			var l lease
			l.init(time.Now(), accessOf(t, g, strconv.Itoa(n)), identity{})
			err := l.acquire(new(store.Record), time.Now(), false)
			require.NoError(t, err)
			l.keep(new(runContext))
			time.Sleep(l.claim.Lease / renewalsPerLease)
			l.resume(l.claim.Owner, time.Now())
			require.True(t, l.end())
		}
		synctest.Wait()
	})
}

// A renewal is under way when the claim is lost, and found again by a new one. That the old
// claim was refused says nothing of the new one.
func TestRefusalOfAnEarlierRenewalIsOfThePast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slowRenewals{NewMemoryStore(), make(chan error)}
		g, err := New(st, SharedScope)
		require.NoError(t, err)
		var l lease
		l.init(time.Now(), accessOf(t, g, "k"), identity{})
		err = l.acquire(new(store.Record), time.Now(), false)
		require.NoError(t, err)
		l.keep(new(runContext))
		time.Sleep(l.claim.Lease / renewalsPerLease)
		l.resume(l.claim.Owner, time.Now())
		st.result <- store.ErrNotOwner
		synctest.Wait()
		require.False(t, l.isLost())
		require.True(t, l.end())
	})
}

// slowRenewals answers a renewal when the test says how.
type slowRenewals struct {
	*MemoryStore
	result chan error
}

func (s *slowRenewals) Renew(context.Context, string, store.Owner) error { return <-s.result }

func accessOf(t *testing.T, g *Guard, value string) access {
	k := Key{Scope: Shared, Value: value}
	return access{core: g.core, set: &g.set, id: k, key: k.storeKey(), client: t.Context()}
}
