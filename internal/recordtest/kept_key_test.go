package recordtest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// What is kept of a key, and who gets from the name of a record back to it.

// keysOf is a store that shows what claims leave of keys, and can change it.
type keysOf struct {
	store.Inspector
	idempotency.Store
	claims []store.Claim
	alter  func([]byte) []byte
}

func newKeysOf() *keysOf {
	st := idempotency.NewMemoryStore()
	return &keysOf{Store: st, Inspector: st}
}

func (s *keysOf) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	s.claims = append(s.claims, c)
	return s.Store.Claim(ctx, key, c)
}

func (s *keysOf) Get(ctx context.Context, key string) (store.Record, error) {
	rec, err := s.Inspector.Get(ctx, key)
	if s.alter != nil {
		rec.SealedKey = s.alter(rec.SealedKey)
	}
	return rec, err
}

// keeping is a guard that keeps keys.
func keeping(t *testing.T, st idempotency.Store, sealer idempotency.Sealer, opts ...idempotency.Option) (*idempotency.Guard, *guardtest.Events) {
	t.Helper()
	events := &guardtest.Events{}
	usual := []idempotency.Option{
		idempotency.WithSealer(sealer), idempotency.WithKeptKeys(true),
		idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe),
	}
	return guardtest.NewGuard(t, st, append(usual, opts...)...), events
}

// nameOf is the name of the record of a key.
func nameOf(t *testing.T, g *idempotency.Guard, k idempotency.Key) idempotency.Key {
	t.Helper()
	info := guardtest.Lookup(t, g, k)
	return idempotency.Key{Record: info.Record}
}

func TestKeptKeyIsReadByTheNameOfItsRecord(t *testing.T) {
	guardtest.OnEachSharedStore(t, func(t *testing.T, st idempotency.Store) {
		route, _ := keeping(t, st, guardtest.NewSealer(t, 1))
		s := guardtest.ServeRecorder(t, route.Handler(guardtest.FailsFirst()))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		byKey := guardtest.Lookup(t, route, guardtest.HeldKey)
		record := idempotency.Key{Record: byKey.Record}

		// The console keeps no keys of its own, and has the sealer.
		events := &guardtest.Events{}
		console := guardtest.NewGuard(t, st, idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithObserver(events.Observe))
		byName := guardtest.Lookup(t, console, record)
		require.Equal(t, guardtest.HeldKey, byName.Key)
		require.Equal(t, byKey.ID, byName.ID)
		require.Len(t, byName.DeriveKey("charge"), 32)
		require.Equal(t, byKey.DeriveKey("charge"), byName.DeriveKey("charge"))
		require.NoError(t, console.Resolve(t.Context(), record, byName.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
		resolved := events.All()[0]
		require.Equal(t, "acme", resolved.Scope)
		require.Equal(t, byKey.ID, resolved.OperationID)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		byName = guardtest.Lookup(t, console, record)
		require.Equal(t, guardtest.HeldKey, byName.Key, "also when the record has its answer")
		require.NoError(t, console.Forget(t.Context(), record, byName.Seen(), idempotency.Decision{}))
		forgotten := events.All()[1]
		require.Equal(t, "acme", forgotten.Scope)
		require.Equal(t, byKey.ID, forgotten.OperationID)
	})
}

// The store learns neither scope nor key, and each record has a form of its own.
func TestKeptKeyIsSealed(t *testing.T) {
	st := newKeysOf()
	g, _ := keeping(t, st, guardtest.NewSealer(t, 1))
	s := guardtest.ServeRecorder(t, g.Handler(&guardtest.Counter{}))
	for range 2 {
		s.Do(t, guardtest.Call{Key: "the-clients-key", Tenant: "globex"})
	}
	off := guardtest.ServeRecorder(t, g.With(idempotency.WithKeptKeys(false)).Handler(&guardtest.Counter{}))
	off.Do(t, guardtest.Call{Key: "off"})
	require.Len(t, st.claims, 3)
	require.NotContains(t, string(st.claims[0].SealedKey), "client")
	require.NotContains(t, string(st.claims[0].SealedKey), "globex")
	require.NotEmpty(t, st.claims[0].SealedKey)
	require.NotEqual(t, st.claims[0].SealedKey, st.claims[1].SealedKey, "equal keys look equal")
	require.Nil(t, st.claims[2].SealedKey)
}

// Somebody who can write to the store cannot make an operator or a resolver look at another key.
func TestNoBitOfAKeptKeyCanBeAltered(t *testing.T) {
	st := newKeysOf()
	g, events := keeping(t, st, guardtest.NewSealer(t, 1))
	s := guardtest.ServeRecorder(t, g.Handler(guardtest.FailsFirst()))
	s.Do(t, guardtest.Call{Key: "k"})
	s.Do(t, guardtest.Call{Key: "other"})
	sealed, moved := st.claims[0].SealedKey, st.claims[1].SealedKey
	record := nameOf(t, g, guardtest.HeldKey)
	forms := [][]byte{moved, append(bytes.Clone(sealed), 0), []byte("acme k")}
	for n := range sealed {
		forms = append(forms, sealed[:n])
		for bit := range 8 {
			altered := bytes.Clone(sealed)
			altered[n] ^= 1 << bit
			forms = append(forms, altered)
		}
	}
	for _, form := range forms {
		st.alter = func([]byte) []byte { return form }
		info, err := g.Lookup(t.Context(), record)
		require.NoError(t, err, "the record itself is whole")
		require.Equal(t, record, info.Key)
		require.Empty(t, info.ID)
	}
	require.Equal(t, 1, events.Count(event.Corrupt), "once for each run")
	require.ErrorIs(t, events.Errors()[len(events.Errors())-1], idempotency.ErrCorrupt)
	st.alter = nil
	require.Equal(t, guardtest.HeldKey, guardtest.Lookup(t, g, record).Key)
}

// A sealer that binds nothing is a mistake of the program. Even then a key is not that of another
// record.
func TestKeptKeyIsThatOfItsRecord(t *testing.T) {
	st := newKeysOf()
	g, events := keeping(t, st, unbound{})
	s := guardtest.ServeRecorder(t, g.Handler(&guardtest.Counter{}))
	s.Do(t, guardtest.Call{Key: "k"})
	s.Do(t, guardtest.Call{Key: "other"})
	record := nameOf(t, g, guardtest.HeldKey)
	st.alter = func([]byte) []byte { return st.claims[1].SealedKey }
	require.Equal(t, record, guardtest.Lookup(t, g, record).Key)
	require.Equal(t, 1, events.Count(event.Corrupt))
}

// unbound is a sealer that leaves everything as it is.
type unbound struct{}

func (unbound) Seal(answer, _ []byte) ([]byte, error) { return answer, nil }

func (unbound) Open(sealed, _ []byte) ([]byte, error) { return sealed, nil }

// Sealing keys are rotated as for answers. A process that does not have the key says so, once.
func TestKeptKeyAndRotation(t *testing.T) {
	st := idempotency.NewMemoryStore()
	before, _ := keeping(t, st, guardtest.NewSealer(t, 1))
	guardtest.ServeRecorder(t, before.Handler(&guardtest.Counter{})).Do(t, guardtest.Call{Key: "k"})
	record := nameOf(t, before, guardtest.HeldKey)
	for name, c := range map[string]struct {
		sealer idempotency.Sealer
		key    idempotency.Key
		events int
	}{
		"new and old": {guardtest.NewSealer(t, 2, 1), guardtest.HeldKey, 0},
		"new":         {guardtest.NewSealer(t, 2), record, 1},
		"none":        {nil, record, 0},
	} {
		events := &guardtest.Events{}
		console := guardtest.NewGuard(t, st, idempotency.WithSealer(c.sealer), idempotency.WithObserver(events.Observe))
		for range 2 {
			info, err := console.Lookup(t.Context(), record)
			require.NoError(t, err, name)
			require.Equal(t, c.key, info.Key, name)
		}
		require.Len(t, events.All(), c.events, name)
		for _, e := range events.All() {
			require.Equal(t, event.Corrupt, e.Kind)
			require.ErrorIs(t, e.Err, idempotency.ErrUnreadableHere)
			require.Equal(t, record.Record, e.Record)
		}
	}
}

// A key that takes too much room is not kept, and its request is served like any other.
func TestKeyThatIsTooLongIsNotKept(t *testing.T) {
	for _, length := range []int{0, 700, 1100, 5000} {
		st := newKeysOf()
		g, err := idempotency.New(st, func(*http.Request) (string, error) { return strings.Repeat("s", 1+length), nil },
			idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithKeptKeys(true))
		require.NoError(t, err)
		s := guardtest.ServeRecorder(t, g.Handler(&guardtest.Counter{}))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.LessOrEqual(t, len(st.claims[0].SealedKey), 1024)
		require.Equal(t, length > 1000, st.claims[0].SealedKey == nil)
	}
}

// The answer could not be sealed either, and its key would be held. So nothing runs.
func TestNothingRunsIfTheKeyCannotBeSealed(t *testing.T) {
	guardtest.Each(t, map[string]idempotency.Sealer{
		"error": guardtest.FailingSealer{Sealer: guardtest.NewSealer(t, 1)}, "panic": panickingSealer{guardtest.NewSealer(t, 1)},
	}, func(t *testing.T, sealer idempotency.Sealer) {
		st := newKeysOf()
		g, events := keeping(t, st, sealer, idempotency.WithRecovery(idempotency.Rerun), idempotency.WithFailOpen(true))
		h := &guardtest.Counter{}
		guardtest.RequireProblem(t, guardtest.ServeRecorder(t, g.Handler(h)).Do(t, guardtest.Call{Key: "k"}),
			http.StatusServiceUnavailable, problem.StoreUnavailable)
		_, _, err := idempotency.Do(t.Context(), g, jobKey, func(context.Context) (int, error) {
			h.Runs.Add(1)
			return 0, errors.New("ran")
		})
		require.ErrorContains(t, err, "no key today")
		require.Zero(t, h.Runs.Load())
		require.Empty(t, st.claims)
		for _, e := range events.All() {
			require.Equal(t, event.Refused, e.Kind)
			require.ErrorContains(t, e.Err, "no key today")
		}
		require.Len(t, events.All(), 2)
	})
}

type panickingSealer struct{ idempotency.Sealer }

func (panickingSealer) Seal([]byte, []byte) ([]byte, error) { panic("no key today") }

// A job keeps its key too.
func TestDoKeepsItsKey(t *testing.T) {
	g, _ := keeping(t, idempotency.NewMemoryStore(), guardtest.NewSealer(t, 1))
	_, _, err := idempotency.Do(t.Context(), g, jobKey, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.Equal(t, jobKey, guardtest.Lookup(t, g, nameOf(t, g, jobKey)).Key)
}
