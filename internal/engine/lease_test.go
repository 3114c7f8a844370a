package engine

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/store"
)

// The timer of the renewals fires, and before it gets to run its lease is found again and
// ended. It must not renew what its renewer is lent to next, or to nobody.
func TestRenewalThatHasJustFiredIsOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engineOn(memory.New(memory.Config{}))
		for n := range 3000 { // who is first is for the scheduler to say
			var l Lease
			l.init(time.Now(), e, accessOf(t, strconv.Itoa(n)), Identity{})
			err := l.acquire(new(store.Record), time.Now(), false)
			require.NoError(t, err)
			l.keep(newTestContext(t))
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
	synctest.Test(t, func(t *testing.T) {
		st := &slowRenewals{memory.New(memory.Config{}), make(chan error)}
		e := engineOn(st)
		var l Lease
		l.init(time.Now(), e, accessOf(t, "k"), Identity{})
		err := l.acquire(new(store.Record), time.Now(), false)
		require.NoError(t, err)
		l.keep(newTestContext(t))
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
	*memory.Store
	result chan error
}

func (s *slowRenewals) Renew(context.Context, string, store.Owner) error { return <-s.result }

func engineOn(st store.Store) *Engine {
	return New(st, false, DefaultWaitingBytes, &Rules{TTL: time.Hour, Lease: 30 * time.Second})
}

func newTestContext(t *testing.T) *runContext {
	c := new(runContext)
	c.init(t.Context(), nil, false)
	return c
}

func accessOf(t *testing.T, value string) Access {
	k := intent.Key{Scope: store.Shared, Value: value}
	return Access{ID: k, Name: k.Name(), Client: t.Context()}
}

// A value of the request is found without the context that ends with the run, which few look at. What has ended the
// run is not taken for what has ended the request.
func TestValuesOfARunContext(t *testing.T) {
	type key struct{}
	parent, hangUp := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	hangUp(errors.New("the client is gone"))
	var c runContext
	c.init(parent, new(Operation), false)
	require.Equal(t, "value", c.Value(key{}))
	require.False(t, c.made.Load())

	lost := errors.New("the claim is lost")
	c.cancel(lost)
	require.Equal(t, lost, context.Cause(&c))
	require.Equal(t, "value", c.Value(key{}))
}
