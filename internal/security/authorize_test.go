package security

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// waysToAnAnswer are all the ways in which a recorded answer reaches a client who has not
// caused it, or has not seen it yet. Each returns the reply to that client. The recorded
// answer is "recorded", with a Location.
var waysToAnAnswer = map[string]func(t *testing.T, opts ...idempotency.Option) guardtest.Reply{
	"repeated": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), recordedIn(time.Second), opts...)
		p.Do(t, guardtest.Call{Key: "k"})
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"waited for": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), recordedIn(time.Second), append(opts, idempotency.WithWait(time.Minute))...)
		first := p.Start(t, guardtest.Call{Key: "k"})
		defer func() { <-first }()
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"by another process, waited for": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		shared := idempotency.NewMemoryStore()
		other := guardtest.NewProcess(t, shared, recordedIn(time.Second))
		p, _ := guardtest.NewWatchingProcess(t, shared, recordedIn(0), append(opts, idempotency.WithWait(time.Minute))...)
		first := other.Start(t, guardtest.Call{Key: "k"})
		defer func() { <-first }()
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"of the run that took over": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		shared := idempotency.NewMemoryStore()
		asleep := make(chan struct{})
		owner := guardtest.NewProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-asleep
			_, _ = io.WriteString(w, "its own")
		}), opts...)
		owner.Store.On("renew", guardtest.Always(guardtest.Deaf(asleep)))
		done := owner.Start(t, guardtest.Call{Key: "k"})
		time.Sleep(guardtest.LeaseTime) // of the bubble
		guardtest.NewProcess(t, shared, recordedIn(0)).Do(t, guardtest.Call{Key: "k"})
		close(asleep)
		return <-done
	},
	"recorded in the background": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), recordedIn(0), opts...)
		p.Store.On("complete", guardtest.First(20, guardtest.Refuse))
		require.Equal(t, "recorded", p.Do(t, guardtest.Call{Key: "k"}).Body, "a run is not a replay")
		time.Sleep(time.Hour) // of the bubble
		return p.Do(t, guardtest.Call{Key: "k"})
	},
	"that a resolver found out": func(t *testing.T, opts ...idempotency.Option) guardtest.Reply {
		opts = append(opts, idempotency.WithRecovery(idempotency.Hold),
			idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				return idempotency.Resolution{
					Outcome: idempotency.Final, Status: http.StatusCreated,
					Header: http.Header{"Location": {"/recorded"}}, Body: []byte("recorded"),
				}, nil
			}))
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(guardtest.FailsFirst()))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		return s.Do(t, guardtest.Call{Key: "k"})
	},
}

// recordedIn returns a handler that gives that answer after d.
func recordedIn(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(d) // of the bubble
		w.Header().Set("Location", "/recorded")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "recorded")
	})
}

// A client who may not see an answer gets neither the answer nor anything it would reveal,
// in any of these ways.
func TestEachWayToAnAnswerIsAuthorized(t *testing.T) {
	for name, way := range waysToAnAnswer {
		t.Run(name, func(t *testing.T) {
			for _, denied := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					asked := 0
					got := way(t, idempotency.WithAuthorizeReplay(func(_ *http.Request, info idempotency.RecordInfo) error {
						asked++
						require.Equal(t, http.StatusCreated, info.Status)
						require.Equal(t, "k acme", info.Key.Value+" "+info.Key.Scope)
						if denied {
							return errors.New("suspended")
						}
						return nil
					}))
					require.Equal(t, 1, asked)
					if !denied {
						require.True(t, got.Replayed(), "no replay, so that the case proves nothing: %+v", got)
						require.Equal(t, "recorded", got.Body)
						return
					}
					guardtest.RequireProblem(t, got, http.StatusForbidden, problem.ReplayDenied)
					require.Empty(t, got.Header.Get("Location"))
					require.False(t, strings.Contains(got.Body, "recorded\"") || strings.Contains(got.Body, "201"), got.Body)
				})
			}
		})
	}
}

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
	type identity struct{ id, derived string }
	identify := func(forge func(*store.Record), tenant string) (got identity) {
		st := &forgingStore{idempotency.NewMemoryStore(), forge}
		g := guardtest.NewGuard(t, st, idempotency.WithSealer(guardtest.NewSealer(t, 1)))
		s := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = identity{guardtest.Op(r.Context()).ID(), idempotency.DeriveKey(r.Context(), "charge")}
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

// Someone who can write to the store changes the status that is kept beside a sealed answer.
// That deceives those who look, and nobody who decides about a replay or gets one.
func TestStatusOfALookupIsForDisplay(t *testing.T) {
	server := miniredis.RunT(t)
	store := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr()))
	guard := guardtest.NewGuard(t, store, idempotency.WithSealer(guardtest.NewSealer(t, 1)),
		idempotency.WithAuthorizeReplay(func(_ *http.Request, info idempotency.RecordInfo) error {
			if info.Status != http.StatusPaymentRequired {
				return errors.New("only refusals are replayed")
			}
			return nil
		}))
	status := http.StatusPaymentRequired
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	})))
	makeUp := func(status byte) {
		t.Helper()
		name := server.Keys()[0]
		header := []byte(server.HGet(name, "m"))
		require.Greater(t, len(header), 65, "the answer is not recorded")
		header[64], header[65] = status>>7, status<<1
		server.HSet(name, "m", string(header))
	}

	require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k"}).Status)
	makeUp(100)
	info := guardtest.Lookup(t, guard, guardtest.HeldKey)
	require.Equal(t, 200, info.Status)
	got := s.Do(t, guardtest.Call{Key: "k"})
	require.True(t, got.Replayed(), got.Body)
	require.Equal(t, status, got.Status)

	server.FlushAll()
	status = http.StatusCreated
	require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k"}).Status)
	makeUp(201)
	info = guardtest.Lookup(t, guard, guardtest.HeldKey)
	require.Equal(t, http.StatusPaymentRequired, info.Status)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusForbidden, problem.ReplayDenied)
}
