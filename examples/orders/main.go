// Command orders is an order service: an order, the message about it and the answer to the client are
// committed together, and a relay publishes the message.
//
//	go run ./examples/orders                                        # SQLite, no server at all
//	go run ./examples/orders -postgres 'postgres://localhost/shop'  # PostgreSQL
//	go run ./examples/orders -one-commit                            # without a lease to wait for
//
// At start it prints the requests to try. Kill it at any moment, start it again, and send a request
// again: there is one order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/idempotency"
)

func main() {
	c := parse(os.Args[1:])
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	// The first signal starts the shutdown, a second one kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := start(ctx, c); err != nil {
		slog.Error("orders", "error", err)
		os.Exit(1)
	}
}

type config struct {
	addr, postgres, dir string
	lease, poll         time.Duration
	oneCommit           bool
}

func parse(args []string) config {
	var c config
	flags := flag.NewFlagSet("orders", flag.ExitOnError)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flags.StringVar(&c.postgres, "postgres", "", "`DSN` of PostgreSQL (default: SQLite)")
	flags.StringVar(&c.dir, "dir", filepath.Join(os.TempDir(), "orders"), "`directory` for SQLite's file, and for what the pretend broker gets")
	flags.DurationVar(&c.lease, "lease", 10*time.Second, "how long a key stays blocked after its process died")
	flags.DurationVar(&c.poll, "poll", 500*time.Millisecond, "how often the relay looks into the outbox")
	flags.BoolVar(&c.oneCommit, "one-commit", false, "commit the claim of a key together with its order: a process that dies blocks nothing")
	_ = flags.Parse(args) // it exits on an error
	return c
}

// open returns the database and the broker.
func (c config) open(ctx context.Context) (*database, *fileBroker, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, nil, err
	}
	b, err := openBroker(filepath.Join(c.dir, "broker.jsonl"))
	if err != nil {
		return nil, nil, err
	}
	var d *database
	if c.postgres == "" {
		d, err = openSQLite(ctx, c.dir, c.oneCommit)
	} else {
		d, err = openPostgres(ctx, c.postgres, c.oneCommit)
	}
	return d, b, err
}

// start runs the service on its database, which it closes last.
func start(ctx context.Context, c config) (err error) {
	d, b, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	return run(ctx, c, d, b, listener)
}

// run serves until ctx ends, then shuts down. The test passes a database, a broker and a listener
// that die.
func run(ctx context.Context, c config, d *database, b broker, listener net.Listener) error {
	log := slog.Default()
	guard, err := idempotency.New(d.store, customerScope,
		idempotency.WithTransaction(true),
		idempotency.WithRequired(true),
		idempotency.WithLease(c.lease),
		idempotency.WithLogger(log))
	if err != nil {
		return err
	}
	// A publication is not in the database, so its runs join no transaction.
	r := &relay{db: d, guard: guard.With(idempotency.WithTransaction(false)), broker: b, every: c.poll, log: log}

	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.run(background) })
	running.Go(func() { sweep(background, d, log) })
	defer running.Wait()
	defer stop()

	fmt.Printf("listening on http://%s\n\n%s\n", listener.Addr(), tryIt(listener.Addr().String(), c.dir))
	server := &http.Server{
		Handler:           (&api{db: d, log: log}).routes(guard),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second, // more than the slowest handler and two seconds
		IdleTimeout:       2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	return shutdown(server, guard)
}

// shutdown ends server and guard together. The 25 seconds are fewer than the 30 that orchestrators
// usually leave between SIGTERM and SIGKILL. The caller closes the database afterwards.
func shutdown(server *http.Server, guard *idempotency.Guard) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- guard.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-recorded)
}

// sweep removes expired records. Nobody sees them, but they take room.
func sweep(ctx context.Context, d *database, log *slog.Logger) {
	const batch = 1000
	every(ctx, 5*time.Minute, func() {
		for {
			removed, err := d.sweep(ctx, batch)
			if err != nil && ctx.Err() == nil {
				log.ErrorContext(ctx, "expired records not removed", "error", err)
			}
			if removed < batch {
				return
			}
		}
	})
}

// tryIt returns the commands to paste into a shell while the service runs.
func tryIt(addr, dir string) string {
	return strings.NewReplacer("ADDR", addr, "DIR", dir).Replace(`order() { curl -si http://ADDR/orders -H 'Authorization: Bearer token-of-alice' -H "Idempotency-Key: $1" -d '{"item":"tea","quantity":'$2'}'; echo; }

order order-1 2              # 201: the order is made
order order-1 2              # 201: the same answer, Idempotent-Replayed: true
order order-1 9              # 409 key-reused: same key, other quantity
cat DIR/broker.jsonl         # the one message that was published
`)
}
