package recordtest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// byHeader is the reference of a request.
var byHeader = idempotency.WithReference(func(r *http.Request, body []byte) string {
	return r.Header.Get("Order") + strings.TrimPrefix(string(body), guardtest.DefaultBody)
})

func tenantOf(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }

// newFinder returns a guard whose records are found.
func newFinder(t *testing.T, st idempotency.Store, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	return guardtest.NewGuardOf(t, st, tenantOf, append([]idempotency.Option{byHeader, idempotency.WithFindableScope(true)}, opts...)...)
}

func charged(t *testing.T, g *idempotency.Guard, tenant, key, order string) {
	t.Helper()
	s := guardtest.ServeRecorder(t, g.Handler(&guardtest.Counter{}))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: key, Header: http.Header{"Tenant": {tenant}, "Order": {order}}}).Status)
}

// found returns the names of the records that a guard finds.
func found(t *testing.T, g *idempotency.Guard, f idempotency.Finding) (names []string) {
	t.Helper()
	for {
		page, next, err := g.Find(t.Context(), f)
		require.NoError(t, err)
		for _, r := range page {
			names = append(names, r.Record)
		}
		if f.Cursor = next; next == "" {
			return names
		}
	}
}

func recordName(t *testing.T, g *idempotency.Guard, tenant, key string) string {
	t.Helper()
	info := guardtest.Lookup(t, g, idempotency.Key{Scope: tenant, Value: key})
	return info.Record
}

// An operator who has an order number, or the name of a tenant, finds the records, and what became of them.
func TestFind(t *testing.T) {
	g := newFinder(t, idempotency.NewMemoryStore(), idempotency.WithRoute("POST /charges"))
	for _, call := range [][3]string{{"alice", "1", "77"}, {"alice", "2", "78"}, {"alice", "3", ""}, {"bob", "1", "77"}} {
		charged(t, g, call[0], call[1], call[2])
		charged(t, g, call[0], call[1], call[2]) // a replay
	}
	alices := []string{recordName(t, g, "alice", "1"), recordName(t, g, "alice", "2"), recordName(t, g, "alice", "3")}
	require.ElementsMatch(t, []string{alices[0], recordName(t, g, "bob", "1")}, found(t, g, idempotency.Finding{Reference: "77"}))
	require.ElementsMatch(t, alices, found(t, g, idempotency.Finding{Scope: "alice"}))
	require.ElementsMatch(t, alices, found(t, g, idempotency.Finding{Scope: "alice", Limit: 1}))
	require.Empty(t, found(t, g, idempotency.Finding{Reference: "alice"}), "a scope is no reference")
	require.Empty(t, found(t, g, idempotency.Finding{Scope: "alice", States: []store.State{store.Held}}))
	require.Empty(t, found(t, g, idempotency.Finding{Scope: "alice", Route: "POST /refunds"}))

	page, _, err := g.Find(t.Context(), idempotency.Finding{Reference: "78"})
	require.NoError(t, err)
	require.Len(t, page, 1)
	require.Equal(t, store.Completed, page[0].State)
	require.Equal(t, "POST /charges", page[0].Route)
	require.Equal(t, idempotency.Key{Record: alices[1]}, page[0].Key)

	for _, f := range []idempotency.Finding{{}, {Reference: "77", Scope: "alice"}} {
		_, _, err := g.Find(t.Context(), f)
		require.ErrorContains(t, err, "give a Reference or a Scope")
	}
	_, _, err = g.Find(t.Context(), idempotency.Finding{Reference: "78", Cursor: "x"})
	require.ErrorIs(t, err, store.ErrBadCursor)
}

// Who reads the store and has not the secret cannot try order numbers.
func TestFindNeedsTheSecret(t *testing.T) {
	st := idempotency.NewMemoryStore()
	g := newFinder(t, st, idempotency.WithDerivation("", []byte("secret")))
	charged(t, g, "alice", "1", "77")
	require.Len(t, found(t, g, idempotency.Finding{Reference: "77"}), 1)
	require.Len(t, found(t, g, idempotency.Finding{Scope: "alice"}), 1)
	for _, secret := range [][]byte{nil, []byte("another")} {
		other := newFinder(t, st, idempotency.WithDerivation("", secret))
		require.Empty(t, found(t, other, idempotency.Finding{Reference: "77"}))
		require.Empty(t, found(t, other, idempotency.Finding{Scope: "alice"}))
	}
}

// A job has a reference without a request.
func TestFindAJob(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	k := idempotency.Key{Scope: "jobs", Value: "1"}
	job := func(g *idempotency.Guard, opts ...idempotency.TaskOption) error {
		_, _, err := idempotency.Do(t.Context(), g, k, func(context.Context) (int, error) { return 1, nil }, opts...)
		return err
	}
	require.NoError(t, job(g, idempotency.ForReference("77")))
	require.Equal(t, []string{recordName(t, g, "jobs", "1")}, found(t, g, idempotency.Finding{Reference: "77"}))
	require.Empty(t, found(t, g, idempotency.Finding{Scope: "jobs"}), "the guard has no WithFindableScope")

	plain := guardtest.NewGuard(t, guardtest.PlainStore{Store: idempotency.NewMemoryStore()})
	require.ErrorIs(t, job(plain, idempotency.ForReference("77")), idempotency.ErrNoFinder)
	require.NoError(t, job(plain, idempotency.ForReference("")))
	_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: "jobs", Value: "2"}, func(ctx context.Context) (int, error) {
		return idempotency.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil }, idempotency.ForReference("77"))
	})
	require.ErrorIs(t, err, idempotency.ErrStepMisuse)
}

// A store that keeps no tags is found out at the start, and not when somebody looks for an order.
func TestFindNeedsAFinder(t *testing.T) {
	for _, st := range []idempotency.Store{
		guardtest.PlainStore{Store: idempotency.NewMemoryStore()}, tagless{idempotency.NewMemoryStore()},
	} {
		for _, opt := range []idempotency.Option{byHeader, idempotency.WithFindableScope(true)} {
			_, err := idempotency.New(st, tenantOf, opt)
			require.ErrorIs(t, err, idempotency.ErrNoFinder)
		}
		g := guardtest.NewGuardOf(t, st, tenantOf)
		_, _, err := g.Find(t.Context(), idempotency.Finding{Reference: "77"})
		require.ErrorIs(t, err, idempotency.ErrNoFinder)
	}
}

// A tagless store has an older schema.
type tagless struct{ *idempotency.MemoryStore }

func (tagless) KeepsTags() error { return context.Canceled }
