package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

// A bank is a downstream service that makes each effect once for a key.
type bank struct {
	mu      sync.Mutex
	charges map[string]int // by the key
	ids     map[string]bool
}

func newBank() *bank { return &bank{charges: map[string]int{}, ids: map[string]bool{}} }

// charge is a handler that charges under a derived key and notes the run's ID.
func (b *bank) charge(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.charges[idempotency.DeriveKey(r.Context(), "charge")]++
	if op, ok := idempotency.FromContext(r.Context()); ok {
		b.ids[op.ID()] = true
	}
	w.WriteHeader(http.StatusCreated)
}

// The store forgets everything, which is the case that derived keys and unique constraints
// are for: the run is repeated, and downstream it is still one effect.
func TestIntentOutlivesTheRecord(t *testing.T) {
	server := redistest.Start(t)
	b := newBank()
	store := guardtest.RedisAt(t, server)
	s := guardtest.ServeHTTP1(t, guardtest.NewGuard(t, store).Handler(http.HandlerFunc(b.charge)))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	server.Do(t, "FLUSHALL")
	got := s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, http.StatusCreated, got.Status)
	require.False(t, got.Replayed(), "the run is repeated")
	require.Len(t, b.charges, 1)
	require.Len(t, b.ids, 1)
}

// What is derived depends on the whole intent and on nothing else: not on the store, the
// process or the attempt.
func TestIntentIsScopeKeyAndRequest(t *testing.T) {
	derived := func(c guardtest.Call, opts ...idempotency.Option) (key string) {
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...)
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			key = guardtest.Op(r.Context()).ID() + " " + idempotency.DeriveKey(r.Context(), "charge")
		})))
		s.Do(t, c)
		return key
	}
	same := derived(guardtest.Call{Key: "k"})
	require.Equal(t, same, derived(guardtest.Call{Key: "k"}))
	seen := map[string]string{same: "the intent itself"}
	for name, other := range map[string]string{
		"another key":       derived(guardtest.Call{Key: "l"}),
		"another scope":     derived(guardtest.Call{Key: "k", Tenant: "globex"}),
		"another body":      derived(guardtest.Call{Key: "k", Body: "{}"}),
		"another path":      derived(guardtest.Call{Key: "k", Path: "/payouts"}),
		"another namespace": derived(guardtest.Call{Key: "k"}, idempotency.WithDerivation("eu", nil)),
		"a secret":          derived(guardtest.Call{Key: "k"}, idempotency.WithDerivation("", []byte("secret"))),
		"another secret":    derived(guardtest.Call{Key: "k"}, idempotency.WithDerivation("", []byte("secrets"))),
	} {
		require.Empty(t, seen[other], name)
		seen[other] = name
	}
}

// The store is away and the route fails open. The downstream service tells that the run
// before it, and the protected one after it, had the same intent; so does package client.
func TestRunThatFailsOpenHasItsIntent(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]int{}
	downstream := guardtest.ServeHTTP1(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent[r.Header.Get("Idempotency-Key")]++
	}))
	transport, err := client.New(downstream.Client.Transport)
	require.NoError(t, err)
	b := newBank()
	store := guardtest.NewStepFaultStore()
	guard := guardtest.NewGuard(t, store, idempotency.WithFailOpen(true))
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "pay", func(ctx context.Context) (int, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, downstream.URL, http.NoBody)
			if err != nil {
				return 0, err
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return 0, err
			}
			return resp.StatusCode, resp.Body.Close()
		})
		assert.NoError(t, err)
		b.charge(w, r)
	})))
	store.Fail(guardtest.Refuse)
	for range 2 {
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	}
	store.Heal()
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Len(t, b.charges, 1)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, sent, 1, "%v", sent)
}

// A Do inside a handler has an intent of its own, also where both fail open.
func TestNestedRunHasAnIntentOfItsOwn(t *testing.T) {
	for _, fault := range []guardtest.Fault{nil, guardtest.Refuse} {
		store := &guardtest.FaultStore{}
		store.Replace(idempotency.NewMemoryStore())
		store.Fail(fault)
		guard := guardtest.NewGuard(t, store, idempotency.WithFailOpen(true))
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys := map[string]bool{idempotency.DeriveKey(r.Context(), "charge"): true}
			for i := range 2 {
				k := idempotency.Key{Scope: "jobs", Value: fmt.Sprint(i)}
				_, _, err := idempotency.Do(r.Context(), guard, k, func(ctx context.Context) (int, error) {
					keys[idempotency.DeriveKey(ctx, "charge")] = true
					return 0, nil
				})
				assert.NoError(t, err)
			}
			_ = json.NewEncoder(w).Encode(len(keys))
		})))
		require.Equal(t, "3\n", s.Do(t, guardtest.Call{Key: "k"}).Body)
		store.Heal() // or a shutdown waits until the claims are released
	}
}
