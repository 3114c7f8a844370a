package guardtest

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// An AlteringStore returns other answers than the recorded ones.
type AlteringStore struct {
	idempotency.Store
	// Alter makes the returned answer from the recorded one.
	Alter func(answer []byte) []byte
}

// Claim alters the answer in the record.
func (s *AlteringStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, key, c)
	if rec.State == store.Completed && s.Alter != nil {
		rec.Answer = s.Alter(slices.Clone(rec.Answer))
	}
	return rec, err
}

// StoredAnswer returns what a guard with the options records for a request.
func StoredAnswer(t *testing.T, c Call, opts ...idempotency.Option) (stored []byte) {
	t.Helper()
	st := &AlteringStore{Store: idempotency.NewMemoryStore(), Alter: func(b []byte) []byte { stored = b; return b }}
	s := ServeRecorder(t, NewGuard(t, st, opts...).Handler(&Counter{}))
	s.Do(t, c)
	require.True(t, s.Do(t, c).Replayed())
	return stored
}

// SharedStores are the stores that tests of concurrent requests run on.
var SharedStores = map[string]func(testing.TB) idempotency.Store{
	"memory": func(testing.TB) idempotency.Store { return idempotency.NewMemoryStore() },
	"redis": func(t testing.TB) idempotency.Store {
		return RedisStore(t, PatientRedisClient(t, redistest.Start(t).Addr))
	},
}

// OnEachSharedStore runs a test on each of [SharedStores].
func OnEachSharedStore(t *testing.T, f func(t *testing.T, st idempotency.Store)) {
	t.Helper()
	for name, open := range SharedStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

// List returns all records of the store that the query asks for, page by page.
func List(t testing.TB, st store.Lister, q store.Query) (entries []store.Entry) {
	t.Helper()
	for {
		page, err := st.List(t.Context(), q)
		require.NoError(t, err)
		entries = append(entries, page.Entries...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return entries
		}
	}
}

// A PlainStore has none of the optional abilities.
type PlainStore struct{ idempotency.Store }

// A SpyStore shows the recorded steps, and can change them.
type SpyStore struct {
	*idempotency.MemoryStore
	// Saved holds what was recorded, by the names of the steps.
	Saved map[string][]byte
	// Tell makes the steps that a later attempt sees from the recorded ones, if it is set.
	Tell func(map[string][]byte) map[string][]byte
}

// SaveStep remembers the value and records it.
func (s *SpyStore) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	s.Saved[name] = value
	return s.MemoryStore.SaveStep(ctx, key, o, name, value)
}

// Claim returns a record with the steps that Tell makes.
func (s *SpyStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := s.MemoryStore.Claim(ctx, key, c)
	if rec.Mine && rec.Attempt > 1 && s.Tell != nil {
		rec.Steps = s.Tell(rec.Steps)
	}
	return rec, err
}

// MemoryKeys returns n keys in the form that stores get.
func MemoryKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
		keys[i] = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return keys
}

// MemoryClaim returns the claim of the nth owner.
func MemoryClaim(n uint64) store.Claim {
	c := store.Claim{Lease: 30 * time.Second, Retention: 24 * time.Hour}
	binary.BigEndian.PutUint64(c.Owner[:], n+1)
	return c
}

// Answered is what an operator gives to Resolve who knows the answer.
func Answered(answer string) store.Settlement {
	return store.Settlement{Completion: &store.Completion{Answer: []byte(answer), TTL: time.Hour}}
}

// Claim claims a key of a store.
func Claim(t testing.TB, st store.Store, key string, c store.Claim) store.Record {
	t.Helper()
	rec, err := st.Claim(t.Context(), key, c)
	require.NoError(t, err)
	return rec
}

// Get reads a record.
func Get(t testing.TB, st store.Inspector, key string) store.Record {
	t.Helper()
	rec, err := st.Get(t.Context(), key)
	require.NoError(t, err)
	return rec
}
