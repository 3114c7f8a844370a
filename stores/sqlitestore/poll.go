package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"example.com/idempotency/internal/watch"
)

// pollEvery is how often the file is asked whether another process has written, while somebody
// waits and for a minute after that.
const pollEvery = 25 * time.Millisecond

// A poller asks the connection that writes whether another one has written.
type poller struct {
	writer *sql.DB
	watch  *watch.Subscription // whom it tells
}

// pollOn returns a subscription to what others write.
func pollOn(writer *sql.DB) *watch.Subscription {
	p := &poller{writer: writer}
	p.watch = watch.NewSubscription(p.poll)
	return p.watch
}

// poll asks on behalf of all who wait, until nobody has waited for a while.
func (p *poller) poll(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	p.watch.Confirmed()
	for last := int64(-1); !p.watch.Retire(); {
		version, err := p.dataVersion(ctx)
		// Who cannot ask wakes everybody: they find out for themselves.
		if err != nil || version != last {
			p.watch.Confirmed()
		}
		last = version
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// dataVersion changes when another connection than that of the writer has written.
func (p *poller) dataVersion(ctx context.Context) (version int64, err error) {
	err = p.writer.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&version)
	return version, err
}
