package recordtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// unmark takes the mark out of the store, as if it had been emptied.
func unmark(t *testing.T, st *listed) {
	t.Helper()
	rec := guardtest.Get(t, st.inspected, intent.BirthMark)
	require.NoError(t, st.inspected.Forget(t.Context(), intent.BirthMark, rec.Seen()))
}

// mark is that of another process, which has taken so long for it.
func mark(t *testing.T, st *listed, done bool) {
	t.Helper()
	owner := store.Owner{7}
	guardtest.Claim(t, st.inspected, intent.BirthMark, store.Claim{Owner: owner, Lease: time.Hour, Retention: 2 * time.Hour})
	if done {
		require.NoError(t, st.inspected.Complete(t.Context(), intent.BirthMark, owner, store.Completion{TTL: 1 << 60}))
	}
}

// A store that is emptied, or that another takes the place of, is told of, also where this process has completed nothing.
func TestStoreThatIsResetIsToldOf(t *testing.T) {
	type row struct {
		happens func(t *testing.T, st *listed)
		want    []string // what the events say
		age     time.Duration
	}
	guardtest.EachInBubble(t, map[string]row{
		"nothing": {func(*testing.T, *listed) {}, nil, 0},
		"emptied": {func(t *testing.T, st *listed) { unmark(t, st) }, []string{"the store was empty at 2000-01-01 00:31 UTC; keys from before that run again"}, 0},
		"emptied, and another process has marked it": {func(t *testing.T, st *listed) {
			unmark(t, st)
			mark(t, st, true)
		}, []string{"the store was empty at 2000-01-01 00:30 UTC; keys from before that run again"}, 30 * time.Second},
		"emptied, and another process begins to mark it": {func(t *testing.T, st *listed) {
			unmark(t, st)
			mark(t, st, false)
		}, nil, 0},
		"emptied, and a process that has begun to mark it dies": {func(t *testing.T, st *listed) {
			unmark(t, st)
			mark(t, st, false)
			ticks(60)
		}, []string{"the store was empty at 2000-01-01 01:31 UTC; keys from before that run again"}, 0},
		"emptied twice": {func(t *testing.T, st *listed) {
			unmark(t, st)
			ticks(2)
			unmark(t, st)
		}, []string{
			"the store was empty at 2000-01-01 00:31 UTC; keys from before that run again",
			"the store was empty at 2000-01-01 00:33 UTC; keys from before that run again",
		}, 0},
	}, func(t *testing.T, c row) {
		st := newListed()
		d := newDesk(t, st).reconcile(t)
		time.Sleep(30 * time.Second)
		ticks(30)
		c.happens(t, st)
		ticks(3)
		var said []string
		for _, e := range d.only(event.StoreReset) {
			said = append(said, e.Err.Error()[len("idempotency: "):])
			require.Equal(t, c.age, e.Age)
		}
		require.Equal(t, c.want, said)
		require.Empty(t, d.only(event.StoreError))
	})
}

// A store that was born before the one whose place it takes was not empty, and lacks what that one knew.
func TestOlderStoreInPlaceIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older := newListed()
		mark(t, older, true)
		time.Sleep(time.Hour)
		st := newListed()
		d := newDesk(t, st).reconcile(t)
		st.inspected = older.inspected
		st.Replace(older.inspected)
		ticks(3)
		told := d.only(event.StoreReset)
		require.Len(t, told, 1)
		require.ErrorContains(t, told[0].Err, "a store that was born at 2000-01-01 00:00 UTC has taken the place of the one that was born at 2000-01-01 01:00 UTC")
		require.Equal(t, time.Hour+time.Minute, told[0].Age)
	})
}

// Nobody takes a store whose mark cannot be read for one that has kept everything.
func TestUnreadableMarkIsToldOf(t *testing.T) {
	corrupt := guardtest.FailWith(store.ErrCorrupt)
	type row struct {
		call  string
		fault guardtest.Fault
		want  event.Kind
	}
	guardtest.EachInBubble(t, map[string]row{
		"the store refuses to read it": {"get-own", guardtest.Refuse, event.StoreError},
		"it is corrupt":                {"get-own", corrupt, event.Corrupt},
		"the store refuses to make it": {"claim", guardtest.Refuse, event.StoreError},
		"it cannot be completed":       {"complete", guardtest.Refuse, event.StoreError},
	}, func(t *testing.T, c row) {
		st := newListed()
		st.On(c.call, guardtest.Always(c.fault))
		d := newDesk(t, st)
		require.ErrorContains(t, d.Check(t.Context()), "the mark of the store's birth cannot be read or made")
		require.Empty(t, d.All(), "the caller of Check has the error")
		d.reconcile(t)
		ticks(3)
		require.Equal(t, 1, d.Count(c.want), "told once")
		require.Len(t, d.All(), 1)
		require.Equal(t, []any{"birth", intent.BirthMark}, []any{d.All()[0].Op, d.All()[0].Record})

		st.On(c.call, nil)
		ticks(1)
		require.NoError(t, d.Check(t.Context()))
		st.On("get-own", guardtest.Always(guardtest.Refuse))
		ticks(3)
		require.Len(t, d.All(), 2, "told again")
	})
}

// A store without the ability is left alone, and so is one that ends with its process.
func TestStoreWithoutBirth(t *testing.T) {
	memory := idempotency.NewMemoryStore()
	for _, st := range []idempotency.Store{memory, guardtest.PlainStore{Store: memory}} {
		g := guardtest.NewGuard(t, st)
		require.NoError(t, g.Check(t.Context()))
		require.Empty(t, guardtest.List(t, memory, store.Query{}))
	}
}

// Check says what the store says of itself, too.
func TestCheckAsksTheStore(t *testing.T) {
	server := miniredis.RunT(t)
	st := guardtest.RedisStore(t, guardtest.PatientRedisClient(t, server.Addr()))
	want := st.Check(t.Context())
	require.Error(t, want, "miniredis tells nothing of itself")
	require.EqualError(t, guardtest.NewGuard(t, st).Check(t.Context()), want.Error())
}

func TestRedisBirth(t *testing.T) {
	server := redistest.Start(t)
	guardtest.RequireBirth(t, guardtest.RedisStore(t, guardtest.PatientRedisClient(t, server.Addr)), func() { server.Do(t, "FLUSHALL") })
}
