package recordtest

import (
	"context"
	"errors"
	"net/http"
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
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

func TestTombstone(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		guardtest.RequireTombstone(t, st)
		require.Zero(t, st.Len(), "the library's own are not counted")
	})
	t.Run("miniredis", func(t *testing.T) {
		guardtest.RequireTombstone(t, guardtest.RedisStore(t, guardtest.PatientRedisClient(t, miniredis.RunT(t).Addr())))
	})
	t.Run("redis", func(t *testing.T) {
		guardtest.RequireTombstone(t, guardtest.RedisStore(t, guardtest.PatientRedisClient(t, redistest.Start(t).Addr)))
	})
}

var (
	ada = idempotency.Decision{Actor: "ada", Reason: "the order was a test"}
	bea = idempotency.Decision{Actor: "bea", Reason: "the bank has nothing"}
)

// left is a store with a record that is left in one state, an hour ago, and a guard that forgets it.
type left struct {
	*listed
	*idempotency.Guard
	*guardtest.Events
	server *guardtest.Server
	key    idempotency.Key
	status int // what the handler answers
}

func newLeft(t *testing.T, status int, opts ...idempotency.Option) *left {
	t.Helper()
	l := &left{listed: newListed(), Events: new(guardtest.Events), key: idempotency.Key{Scope: "acme", Value: "k"}, status: status}
	l.Guard = guardtest.NewGuard(t, l.listed, append([]idempotency.Option{
		idempotency.WithRoute("POST /charges"), idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(l.Observe),
	}, opts...)...)
	l.server = guardtest.ServeRecorder(t, l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(l.status) })))
	l.server.Do(t, guardtest.Call{Key: "k"})
	time.Sleep(time.Minute) // of the bubble
	return l
}

func (l *left) look(t *testing.T) idempotency.RecordInfo {
	t.Helper()
	info := guardtest.Lookup(t, l.Guard, l.key)
	require.Nil(t, info.Forgotten)
	return info
}

// forgotten is what is left, or nil.
func (l *left) forgotten(t *testing.T) *idempotency.RecordInfo {
	t.Helper()
	info, err := l.Lookup(t.Context(), l.key)
	require.Equal(t, store.ErrNotFound, err)
	return info.Forgotten
}

func (l *left) forget(t *testing.T, d idempotency.Decision) error {
	t.Helper()
	return l.Forget(t.Context(), l.key, l.look(t).Seen(), d)
}

// actors are those who have decided, oldest first.
func actors(i *idempotency.RecordInfo) (all []string) {
	for _, d := range i.Decisions {
		all = append(all, d.Actor)
	}
	return all
}

// Whatever a record was is told for 30 days, or for as long as the guard says.
func TestTombstoneTellsWhatARecordWas(t *testing.T) {
	for state, status := range map[store.State]int{
		store.Completed: http.StatusCreated, store.Held: http.StatusInternalServerError, store.Released: http.StatusTooManyRequests,
	} {
		guardtest.Bubble(t, state.String(), func(t *testing.T) {
			l := newLeft(t, status)
			require.NoError(t, l.forget(t, ada))
			time.Sleep(30*24*time.Hour - time.Second)
			was := l.forgotten(t)
			require.NotNil(t, was)
			require.Equal(t, []any{state, 1, "POST /charges", time.Minute, time.Second}, []any{was.State, was.Attempt, was.Route, was.Age, was.TTL})
			require.Equal(t, state.String(), was.Decisions[0].From)
			require.Equal(t, []string{"ada"}, actors(was))
			require.Equal(t, []any{idempotency.Key{Record: was.Record}, "", 0, int64(0)}, []any{was.Key, was.ID, was.Status, was.Size})
			time.Sleep(time.Second)
			require.Nil(t, l.forgotten(t))
		})
	}
	guardtest.EachInBubble(t, map[string]time.Duration{"none": 0, "less than none": -1}, func(t *testing.T, d time.Duration) {
		l := newLeft(t, http.StatusCreated, idempotency.WithTombstones(d))
		claims := l.listed.Count("claim")
		require.NoError(t, l.forget(t, ada))
		require.Equal(t, claims, l.listed.Count("claim"))
		require.Nil(t, l.forgotten(t))
		require.Empty(t, guardtest.List(t, l.inspected, store.Query{}))
	})
}

// The decisions about the record, and about those that the key had before, are told with the last one.
func TestTombstoneTellsWhoHasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeft(t, http.StatusInternalServerError)
		info := l.look(t)
		require.NoError(t, l.Resolve(t.Context(), l.key, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted, Decision: bea}))
		require.NoError(t, l.forget(t, ada))
		require.Equal(t, []string{"bea", "ada"}, actors(l.forgotten(t)))
		last := l.forgotten(t).Decisions[1]
		events := l.All()
		require.Equal(t, []any{event.Forgotten, last.ID}, []any{events[len(events)-1].Kind, events[len(events)-1].Decision}, "the event has the same ID")

		l.server.Do(t, guardtest.Call{Key: "k"})
		require.NoError(t, l.forget(t, bea))
		require.Equal(t, []string{"bea", "ada", "bea"}, actors(l.forgotten(t)))
		require.NoError(t, l.Forget(t.Context(), l.key, l.forgotten(t).Seen(), ada), "what is not there")
		require.Equal(t, []string{"bea", "ada", "bea"}, actors(l.forgotten(t)))
	})
}

// A record that cannot be read leaves a tombstone, too.
func TestTombstoneOfACorruptRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeft(t, http.StatusCreated)
		seen := l.look(t).Seen()
		l.On("get", func(n int) guardtest.Fault {
			return func(context.Context, func() error) error { return store.ErrCorrupt }
		})
		l.On("forget", guardtest.Always(func(ctx context.Context, _ func() error) error {
			return l.inspected.Forget(ctx, l.name(t), seen)
		}))
		require.NoError(t, l.Forget(t.Context(), l.key, store.Seen{State: store.Corrupt}, ada))
		l.On("get", nil)
		require.Equal(t, store.Corrupt, l.forgotten(t).State)
	})
}

func (l *left) name(t *testing.T) string { t.Helper(); return intent.Key(l.key).Name() }

// A removal that the store refuses leaves what was there, and no word of it.
func TestRefusedForgettingLeavesNoTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := guardtest.FailWith(store.ErrChanged)
		l := newLeft(t, http.StatusCreated)
		refuse := func() {
			t.Helper()
			own := guardtest.List(t, l.inspected, store.Query{})
			l.On("forget", guardtest.Always(changes))
			require.ErrorIs(t, l.forget(t, bea), store.ErrChanged)
			l.On("forget", nil)
			require.Len(t, guardtest.List(t, l.inspected, store.Query{}), len(own))
			require.Equal(t, http.StatusCreated, l.look(t).Status)
		}
		refuse()
		require.ErrorIs(t, l.Forget(t.Context(), l.key, store.Seen{State: store.Held, Attempt: 1}, bea), store.ErrChanged, "another record was seen")
		require.Len(t, guardtest.List(t, l.inspected, store.Query{}), 1)
		require.NoError(t, l.forget(t, ada))
		before := l.forgotten(t)

		l.server.Do(t, guardtest.Call{Key: "k"})
		time.Sleep(time.Hour)
		refuse()
		require.NoError(t, l.inspected.Forget(t.Context(), l.name(t), l.look(t).Seen()))
		before.TTL -= time.Hour
		require.Equal(t, before, l.forgotten(t), "as it was, and until it would have ended")
	})
}

// A record is not removed unless it is told before, but for a store that is full.
func TestForgettingWithoutATombstone(t *testing.T) {
	full := guardtest.FailWith(store.ErrFull)
	corrupt := guardtest.FailWith(store.ErrCorrupt)
	type row struct {
		call  string
		fault guardtest.Fault
		want  error // nil if the record is removed
	}
	guardtest.EachInBubble(t, map[string]row{
		"the store is away when it is read": {"get-answer", guardtest.Refuse, guardtest.ErrDown},
		"the store is away when it is made": {"claim", guardtest.Refuse, guardtest.ErrDown},
		"the store is away when it is done": {"complete", guardtest.Refuse, guardtest.ErrDown},
		"the store is full":                 {"claim", full, nil},
		"one that was there is corrupt":     {"get-answer", corrupt, nil},
	}, func(t *testing.T, c row) {
		l := newLeft(t, http.StatusCreated)
		l.On(c.call, guardtest.Always(c.fault))
		err := l.forget(t, ada)
		l.On(c.call, nil)
		if c.want != nil {
			require.ErrorIs(t, err, c.want)
			l.look(t)
			time.Sleep(10 * time.Second) // the lease of the one that was begun
			require.NoError(t, l.forget(t, ada))
			require.Equal(t, []string{"ada"}, actors(l.forgotten(t)))
			return
		}
		require.NoError(t, err)
		gone := l.forgotten(t)
		require.Equal(t, c.call == "claim", gone == nil)
		told := 0
		for _, e := range l.All() {
			if e.Kind == event.StoreError && e.Op == "tombstone" && errors.Is(e.Err, store.ErrFull) {
				told++
			}
		}
		require.Equal(t, c.call == "claim", told == 1)
	})
}

// A call whose reply was lost is repeated. Nobody knew whether the record was removed, and it is told once.
func TestRepeatedForgettingCountsOnce(t *testing.T) {
	guardtest.EachInBubble(t, map[string]guardtest.Fault{"it was not removed": guardtest.Refuse, "it was removed": guardtest.LoseReply}, func(t *testing.T, fault guardtest.Fault) {
		l := newLeft(t, http.StatusCreated)
		seen := l.look(t).Seen()
		l.On("forget", guardtest.Always(fault))
		require.ErrorIs(t, l.Forget(t.Context(), l.key, seen, ada), guardtest.ErrDown)
		l.On("forget", nil)
		require.NoError(t, l.Forget(t.Context(), l.key, seen, ada))
		require.Equal(t, []string{"ada"}, actors(l.forgotten(t)))
	})
}

// Of two who forget a record at one moment, one is told to look again.
func TestTombstoneOfSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeft(t, http.StatusCreated)
		name := intent.Tombstone(l.name(t))
		guardtest.Claim(t, l.inspected, name, store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour})
		require.ErrorIs(t, l.forget(t, ada), store.ErrChanged)
		l.look(t)
		time.Sleep(time.Minute)
		require.NoError(t, l.forget(t, ada))
		require.NotNil(t, l.forgotten(t))
	})
}

// A tombstone that cannot be read is told of, and the key has no record all the same.
func TestUnreadableTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeft(t, http.StatusCreated)
		require.NoError(t, l.forget(t, ada))
		requireUnread := func() {
			t.Helper()
			info, err := l.Lookup(t.Context(), l.key)
			require.ErrorIs(t, err, idempotency.ErrNotFound)
			require.NotErrorIs(t, err, idempotency.ErrCorrupt, "that would be said of the record of the key")
			require.ErrorContains(t, err, "nobody can tell whether it was forgotten")
			require.Zero(t, info)
		}
		l.On("get-answer", guardtest.Always(func(context.Context, func() error) error { return store.ErrCorrupt }))
		requireUnread()
		l.On("get-answer", nil)

		name := intent.Tombstone(l.name(t))
		rec := guardtest.Get(t, l.inspected, name)
		require.NoError(t, l.inspected.Forget(t.Context(), name, rec.Seen()))
		guardtest.Claim(t, l.inspected, name, store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour})
		require.NoError(t, l.inspected.Complete(t.Context(), name, store.Owner{1}, store.Completion{Answer: []byte("of a later version"), TTL: time.Hour}))
		requireUnread()
		l.server.Do(t, guardtest.Call{Key: "k"})
		require.NoError(t, l.forget(t, bea), "it takes the place of one that cannot be read")
		require.Equal(t, []string{"bea"}, actors(l.forgotten(t)))
	})
}

// Clients hear nothing of what was forgotten, and nobody asks for it on their behalf.
func TestClientsSeeNoTombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeft(t, http.StatusCreated)
		look := guardtest.ServeRecorder(t, l.LookupHandler())
		ask := guardtest.Call{Method: http.MethodGet, Key: "k"}
		other := ask
		other.Key = "never-used"
		require.NoError(t, l.forget(t, ada))
		calls := l.listed.Count("get-answer")
		gone, never := look.Do(t, ask), look.Do(t, other)
		guardtest.RequireProblem(t, gone, http.StatusNotFound, problem.KeyUnknown)
		require.Equal(t, never.Body, gone.Body)
		require.Equal(t, calls, l.listed.Count("get-answer"))
	})
}

// An erased tenant leaves tombstones by the same rule, and a dry run none.
func TestErasingLeavesTombstones(t *testing.T) {
	for kept, want := range map[time.Duration]int{0: 0, time.Hour: 2} {
		st := idempotency.NewMemoryStore()
		g := newFinder(t, st, idempotency.WithTombstones(kept))
		charged(t, g, "alice", "1", "1")
		charged(t, g, "alice", "2", "2")
		_, err := g.Erase(t.Context(), idempotency.Erasing{Scope: "alice", DryRun: true})
		require.NoError(t, err)
		require.Len(t, guardtest.List(t, st, store.Query{}), 2)
		_, err = g.Erase(t.Context(), idempotency.Erasing{Scope: "alice"})
		require.NoError(t, err)
		require.Len(t, guardtest.List(t, st, store.Query{}), want)
		require.Zero(t, st.Len())
		require.Empty(t, found(t, g, idempotency.Finding{Scope: "alice"}))
	}
}

// No decision reaches a record of the library itself, and no key has its name.
func TestOwnRecordsAreNoKeys(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	record := intent.Key{Scope: "acme", Value: "k"}.Name()
	for _, name := range []string{intent.BirthMark, intent.Tombstone(record)} {
		require.Len(t, name, len(record))
		require.True(t, store.IsOwn(name))
		k := idempotency.Key{Record: name}
		_, err := g.Lookup(t.Context(), k)
		require.ErrorContains(t, err, "is not the name of a record")
		require.ErrorContains(t, g.Forget(t.Context(), k, store.Seen{}, ada), "is not the name of a record")
	}
	require.NotEqual(t, intent.Tombstone(record), intent.Tombstone(intent.Key{Scope: "acme", Value: "l"}.Name()))
}
