package security

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// A forgingStore is a store that somebody else writes to: in each record, everything that a
// sealer does not cover is the forger's.
type forgingStore struct {
	idempotency.Store
	forge func(*store.Record)
}

func (s *forgingStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, key, c)
	if err == nil {
		s.forge(&rec)
	}
	return rec, err
}

// What identifies an intent to downstream systems is computed from the request. Nobody gets
// another's derived keys or Operation.ID by writing to the store.
func TestForgedRecordChangesNoDerivedKey(t *testing.T) {
	t.Parallel()
	type identity struct{ id, derived string }
	identify := func(forge func(*store.Record), tenant string) (got identity) {
		st := &forgingStore{idempotency.NewMemoryStore(), forge}
		g := guardtest.NewGuard(t, st, idempotency.WithSealer(guardtest.NewSealer(t, 1)))
		s := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			got = identity{op.ID(), idempotency.DeriveKey(r.Context(), "charge")}
			w.WriteHeader(http.StatusCreated)
		})))
		s.Do(t, guardtest.Call{Key: "k", Tenant: tenant})
		return got
	}
	honest := func(*store.Record) {}
	alice, bob := identify(honest, "alice"), identify(honest, "bob")
	require.NotEmpty(t, alice.id)
	require.NotEqual(t, alice, bob)
	for name, forge := range map[string]func(*store.Record){
		"attempt":     func(r *store.Record) { r.Attempt = 7 },
		"fingerprint": func(r *store.Record) { r.Fingerprint[5]++ },
		"steps":       func(r *store.Record) { r.Steps = map[string][]byte{"charge": []byte("v1")} },
		"age":         func(r *store.Record) { r.Age, r.TTL = -1, -1 },
	} {
		forged := identify(forge, "bob")
		require.Contains(t, []identity{bob, {}}, forged, name) // or nothing runs
		require.NotEqual(t, alice, forged, name)
	}
}
