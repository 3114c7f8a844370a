package pgstore_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about functions of transactions that end when their run does, at the same moment, and about drivers that
// panic. No connection is lost by either.

func requireNoneLost(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, 10*time.Second, time.Millisecond)
}

func serveLate(h http.Handler, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a pool that has lost all lets nobody wait for ever
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
	r.Header.Set("Idempotency-Key", key)
	h.ServeHTTP(httptest.NewRecorder(), r)
}

// A function that gives up at its deadline rolls back in a goroutine, while its handler answers 504.
func TestRollbackBesideTheEndOfItsRun(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "4")
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	g := guardtest.NewGuard(t, s, idempotency.WithTransaction(true))
	var left sync.WaitGroup
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		left.Go(func() {
			done <- s.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, "SELECT 1")
				<-ctx.Done()
				return ctx.Err()
			})
		})
		select {
		case <-done:
		case <-ctx.Done():
		}
		w.WriteHeader(http.StatusGatewayTimeout)
	}))
	var all sync.WaitGroup
	for client := range 4 {
		all.Go(func() {
			for n := range 60 {
				serveLate(h, fmt.Sprint(client, "-", n))
			}
		})
	}
	all.Wait()
	left.Wait()
	requireNoneLost(t, pool)
}

// A driver, or a tracer of the program, that panics in a rollback keeps no connection, and one commit goes on.
func TestRollbackThatPanicsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	var panics atomic.Bool
	config, err := pgxpool.ParseConfig(pgtest.Shared(t).DSN)
	require.NoError(t, err)
	config.MaxConns = 4
	config.ConnConfig.Tracer = beforeQuery(func(sql string) {
		if strings.EqualFold(sql, "rollback") && panics.Load() {
			panic("of a tracer")
		}
	})
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() { // it would wait for connections that are lost
			pool.Close()
		}
	})
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	g := guardtest.NewGuard(t, s, idempotency.WithTransaction(true))
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, err := s.Begin(r.Context(), pgx.TxOptions{})
		if err == nil {
			_, err = tx.Exec(r.Context(), "SELECT 1")
		}
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusInternalServerError) // with the transaction open
	}))
	panics.Store(true)
	for n := range 2 { // which leaves connections for the others
		serveLate(h, fmt.Sprint(n))
	}
	panics.Store(false)
	requireNoneLost(t, pool)
}
