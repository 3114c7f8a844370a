package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about claims of keys that a store has met: they read first.

// What the tests of this file claim and complete.
var (
	payload = store.Fingerprint{1}
	ended   = store.Completion{Status: 201, Answer: []byte("answer"), TTL: time.Minute}
)

// A past is a record that a store has met, or has not, and on which another process works. The run o has
// claimed it.
type past struct {
	*pgstore.Store
	key  string
	o    store.Owner
	pass func(time.Duration)
}

func (p past) completed(ctx context.Context) error { return p.Complete(ctx, p.key, p.o, ended) }

func (p past) forgotten(ctx context.Context) error {
	if err := p.completed(ctx); err != nil {
		return err
	}
	return p.Forget(ctx, p.key, store.Seen{Owner: p.o, Attempt: 1, State: store.Completed})
}

func (p past) resolved(ctx context.Context, by store.Settlement) error {
	if err := p.Hold(ctx, p.key, p.o, nil); err != nil {
		return err
	}
	return p.Resolve(ctx, p.key, store.Seen{Owner: p.o, Attempt: 1, State: store.Held}, by)
}

// pasts are what may have become of a record behind the back of a store that has met its key.
var pasts = map[string]func(ctx context.Context, p past) error{
	"in flight": func(context.Context, past) error { return nil },
	"completed": func(ctx context.Context, p past) error { return p.completed(ctx) },
	"expired": func(ctx context.Context, p past) error {
		err := p.completed(ctx)
		p.pass(ended.TTL)
		return err
	},
	"swept": func(ctx context.Context, p past) error {
		if err := p.completed(ctx); err != nil {
			return err
		}
		p.pass(2 * time.Hour)
		n, err := p.Sweep(ctx, 100)
		if n == 0 {
			err = errors.Join(err, errors.New("nothing swept"))
		}
		return err
	},
	"forgotten": func(ctx context.Context, p past) error { return p.forgotten(ctx) },
	"forgotten and run by another": func(ctx context.Context, p past) error {
		if err := p.forgotten(ctx); err != nil {
			return err
		}
		c := store.Claim{Owner: store.Owner{9}, Fingerprint: payload, Lease: time.Minute, Retention: time.Hour}
		if _, err := p.Claim(ctx, p.key, c); err != nil {
			return err
		}
		return p.Complete(ctx, p.key, c.Owner, store.Completion{Status: 200, Answer: []byte("of another"), TTL: time.Hour})
	},
	"released": func(ctx context.Context, p past) error {
		return p.Release(ctx, p.key, p.o, store.Release{Undone: true, Unbind: true})
	},
	"lapsed": func(_ context.Context, p past) error {
		p.pass(time.Minute)
		return nil
	},
	"held":                     func(ctx context.Context, p past) error { return p.Hold(ctx, p.key, p.o, nil) },
	"resolved as not executed": func(ctx context.Context, p past) error { return p.resolved(ctx, store.Settlement{}) },
	"resolved as executed": func(ctx context.Context, p past) error {
		return p.resolved(ctx, store.Settlement{Completion: &ended})
	},
}

// Whatever has become of a record, a store that has met its key answers a claim as one that has not.
func TestClaimOfAKeyThatWasMet(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	of := func(owner byte, fingerprint store.Fingerprint) store.Claim {
		return store.Claim{Owner: store.Owner{owner}, Fingerprint: fingerprint, Lease: time.Minute, Retention: time.Hour}
	}
	for name, change := range pasts {
		another, table := newStore(t, pool)
		s := openStore(t, pool, pgstore.WithTable(table))
		claim := func(key string, met bool, fingerprint store.Fingerprint, hold bool) (store.Record, error) {
			first := of(1, payload)
			first.Hold = hold
			r := guardtest.Claim(t, another, key, first)
			require.True(t, r.Mine)
			if met {
				r := guardtest.Claim(t, s, key, of(2, payload))
				require.False(t, r.Mine)
			}
			require.NoError(t, change(t.Context(), past{another, key, first.Owner, clock(t, pool, table)}), name)
			return s.Claim(t.Context(), key, of(3, fingerprint))
		}
		for i, fingerprint := range []store.Fingerprint{payload, {2}} {
			for _, hold := range []bool{false, true} {
				want, wantErr := claim(fmt.Sprint("new ", i, hold), false, fingerprint, hold)
				got, err := claim(fmt.Sprint("met ", i, hold), true, fingerprint, hold)
				for _, r := range []*store.Record{&want, &got} {
					r.Age, r.Lease, r.TTL = 0, 0, 0 // they differ by the time between the claims
				}
				require.Equal(t, wantErr, err, name)
				require.Equal(t, want, got, "%s, fingerprint %v, hold %v", name, fingerprint[0], hold)
			}
		}
	}
}

// A store that remembers a key in vain makes one round trip more, once, and loses nothing by it.
func TestKeyRememberedInVain(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, wire *pgtest.Wire, pool *pgxpool.Pool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of a claim that never finds what it looks for
		defer cancel()
		s, table := newStore(t, pool, pgstore.WithConns(1))
		claim := func(key string, mine bool) func() {
			return func() {
				r, err := s.Claim(ctx, key, newClaim())
				require.NoError(t, err)
				require.Equal(t, mine, r.Mine, key)
			}
		}
		claim("warm", true)()
		claim("warm", false)()
		pgstore.Remember(s, "another with this hash")
		require.EqualValues(t, 2, wire.Count(claim("another with this hash", true)))
		require.EqualValues(t, 1, wire.Count(claim("another with this hash", false)))
		_, err := pool.Exec(ctx, "DELETE FROM "+table)
		require.NoError(t, err)
		require.EqualValues(t, 2, wire.Count(claim("another with this hash", true)))
		require.EqualValues(t, 1, wire.Count(claim("new", true)))
	})
}

// A key that is claimed by many at once, all of whom remember it in vain, has one winner.
func TestKeysRememberedInVainHaveOneWinner(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, pgtest.Shared(t).Pool(t), pgstore.WithConns(8))
	keys := keysOf(30)
	for _, key := range keys {
		pgstore.Remember(s, key)
	}
	won := claimers(t, s, keys, 8)
	for _, key := range keys {
		require.Equal(t, 1, won[key], key)
	}
}

// A server that has become a standby is behind its primary, where the record may be another. It refuses
// claims, also those that would only read.
func TestStandbyDoesNotReplay(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool := server.Pool(t)
	s, _ := newStore(t, pool)
	c := newClaim()
	guardtest.Claim(t, s, "key", c)
	require.NoError(t, s.Complete(t.Context(), "key", c.Owner, ended))
	server.BecomeStandby(t)
	require.Eventually(t, func() bool { // its old connections are lost
		_, err := s.Get(t.Context(), "key")
		return err == nil
	}, time.Minute, time.Millisecond)
	var err error
	for range 20 { // and any connection may be
		if _, err = s.Claim(t.Context(), "key", newClaim()); pgstore.Code(err) != "" {
			break
		}
		require.Error(t, err)
	}
	require.Equal(t, "25006", pgstore.Code(err), "%v", err)
}
