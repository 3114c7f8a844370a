package consumers

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/idempotency"
	"example.com/idempotency/queue"
	"example.com/idempotency/stores/pgstore"
)

// River works a job of River, which keeps its jobs in PostgreSQL: call it in the Work of a worker. The
// rows that work writes with tx, the record and the completion of the job are one commit, so no crash
// comes between them. The guard needs [idempotency.WithTransaction], and its store is in the database of
// the jobs. What work does elsewhere belongs into steps before it writes.
//
// River repeats a job while its worker returns an error, and counts that. A job that another worker has
// in hand is snoozed, which does not count, and one that needs somebody to look is cancelled, with the
// reason among its errors. Jobs of a process that has died are found by River after an hour: see its
// RescueStuckJobsAfter. A job has one worker, that of its kind, so its kind and its ID name it. Where
// one guard serves jobs of several schemas, put the schema into Queue.
func River[T river.JobArgs](ctx context.Context, guard *idempotency.Guard, store *pgstore.Store, job *river.Job[T], work func(ctx context.Context, tx pgx.Tx) error) error {
	m := queue.Message{Queue: "river:" + job.Kind, ID: strconv.FormatInt(job.ID, 10), Payload: job.EncodedArgs}
	todo, err := queue.Handle(ctx, guard, m, func(ctx context.Context) error {
		return store.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			if err := work(ctx, tx); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
			return err
		})
	})
	switch {
	case todo == queue.Ack:
		return nil
	case todo == queue.Park:
		return river.JobCancel(err)
	case errors.Is(err, idempotency.ErrInFlight):
		return river.JobSnooze(time.Second)
	default:
		return err
	}
}
