//go:build unix

package consumers

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/stores/pgstore"
)

// Shipment is a job. What says how it ends.
type Shipment struct {
	What string `json:"what"`
}

func (Shipment) Kind() string { return "shipment" }

// A shipper works the jobs of a database. Each has one effect, a row.
type shipper struct {
	river.WorkerDefaults[Shipment]
	guard *idempotency.Guard
	store *pgstore.Store
}

func (s *shipper) Work(ctx context.Context, job *river.Job[Shipment]) error {
	return River(ctx, s.guard, s.store, job, func(ctx context.Context, tx pgx.Tx) error {
		killAt("before the effect")
		if _, err := tx.Exec(ctx, `INSERT INTO parcels VALUES ($1)`, job.Args.What); err != nil {
			return err
		}
		killAt("after the effect")
		switch {
		case job.Args.What == "bad":
			return idempotency.Permanent(errors.New("no such customer"))
		case job.Args.What == "poison":
			panic("poison")
		case job.Args.What == "flaky" && job.Attempt == 1:
			return errors.New("provider is down")
		}
		return pgstore.AfterCommit(tx, func() { killAt("after the record") })
	})
}

// NextRetry repeats jobs at once.
func (s *shipper) NextRetry(*river.Job[Shipment]) time.Time { return time.Now() }

// startShipper starts a client of River that works the jobs of a database.
func startShipper(ctx context.Context, pool *pgxpool.Pool, opts ...idempotency.Option) (*river.Client[pgx.Tx], error) {
	store, err := pgstore.New(ctx, pool)
	if err != nil {
		return nil, err
	}
	guard, err := idempotency.New(store, idempotency.SharedScope, append(opts, idempotency.WithTransaction(true),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &shipper{guard: guard, store: store})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}}, Workers: workers,
		FetchCooldown: killLease / 10, FetchPollInterval: killLease / 5, TestOnly: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return client, client.Start(ctx)
}

// work is the program of a process that works jobs.
func work(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	if _, err := startShipper(ctx, pool, idempotency.WithLease(killLease)); err != nil {
		return err
	}
	select {}
}

// newJobs makes a database with a job for each of what.
func newJobs(t *testing.T, what ...string) (pool *pgxpool.Pool, dsn string) {
	t.Helper()
	dsn = pgserver.Start(t).DSN
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = pool.Exec(t.Context(), `CREATE TABLE parcels (what text)`)
	require.NoError(t, err)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	require.NoError(t, err)
	for _, w := range what {
		_, err := client.Insert(t.Context(), Shipment{w}, nil)
		require.NoError(t, err)
	}
	return pool, dsn
}

// found returns what a query finds.
func found(t *testing.T, pool *pgxpool.Pool, query string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), query)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return values
}

func requireWorked(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		return len(found(t, pool, `SELECT kind FROM river_job WHERE finalized_at IS NULL`)) == 0
	}, time.Minute, 20*time.Millisecond)
}

func TestRiver(t *testing.T) {
	t.Parallel()
	pool, _ := newJobs(t, "good", "flaky", "bad", "poison")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client, err := startShipper(ctx, pool, idempotency.WithRecovery(idempotency.HoldAfter(3)))
	require.NoError(t, err)
	requireWorked(t, pool)
	require.NoError(t, client.Stop(ctx))
	require.Equal(t, []string{"flaky", "good"}, found(t, pool, `SELECT what FROM parcels ORDER BY what`))
	require.Equal(t, []string{"bad cancelled", "flaky completed", "good completed", "poison cancelled"},
		found(t, pool, `SELECT concat(args->>'what', ' ', state) FROM river_job ORDER BY args->>'what'`))
}

// Wherever the process dies, rows, record and completion are there together, and once.
func TestKilledWorkerOfRiver(t *testing.T) {
	t.Parallel()
	pool, dsn := newJobs(t)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	require.NoError(t, err)
	for _, point := range []string{"before the effect", "after the effect", "after the record"} {
		_, err := client.Insert(t.Context(), Shipment{point}, nil)
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envSource+"=River", envBroker+"="+dsn, envPoint+"="+point)
		cmd.Stderr = &strings.Builder{}
		err = cmd.Run()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), cmd.Stderr)
		done := point == "after the record"
		require.Equal(t, done, len(found(t, pool, `SELECT what FROM parcels WHERE what = '`+point+`'`)) == 1)
		require.Equal(t, done, len(found(t, pool, `SELECT kind FROM river_job WHERE state = 'completed' AND args->>'what' = '`+point+`'`)) == 1)
		// River takes a job for stuck after an hour.
		_, err = pool.Exec(t.Context(), `UPDATE river_job SET state = 'available' WHERE state = 'running'`)
		require.NoError(t, err)
		worker, err := startShipper(t.Context(), pool, idempotency.WithLease(killLease))
		require.NoError(t, err)
		requireWorked(t, pool)
		require.NoError(t, worker.Stop(t.Context()))
		require.Equal(t, []string{point}, found(t, pool, `SELECT what FROM parcels WHERE what = '`+point+`'`))
	}
	require.Equal(t, []string{"completed", "completed", "completed"}, found(t, pool, `SELECT state::text FROM river_job`))
}
