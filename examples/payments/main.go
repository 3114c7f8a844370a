// Command payments is a payment API that is safe to retry.
//
// It keeps its records in memory, or with -redis in Redis, where any number of
// processes share them. At start it prints the requests to try.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
)

func main() {
	var c config
	flag.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flag.StringVar(&c.redis, "redis", "", "`host:port` of the Redis that all processes share (default: records in memory)")
	flag.DurationVar(&c.delay, "delay", 0, "how long the payment provider takes")
	flag.DurationVar(&c.lease, "lease", 30*time.Second, "how long a key stays blocked after its process died")
	flag.Parse()

	// The first signal starts the shutdown, a second one kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, c, os.Stdout); err != nil {
		slog.Error("payments", "error", err)
		os.Exit(1)
	}
}

type config struct {
	addr, redis  string
	delay, lease time.Duration
}

// run serves until ctx ends, then shuts down.
func run(ctx context.Context, c config, out io.Writer) error {
	store, closeStore, err := openStore(ctx, c.redis)
	if err != nil {
		return err
	}
	defer closeStore()
	guard, err := newGuard(store, idempotency.WithLease(c.lease))
	if err != nil {
		return err
	}

	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n\n%s\n", listener.Addr(), tryIt(listener.Addr().String()))

	server := &http.Server{
		Handler:           newAPI(guard, newProvider(c.delay)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute, // more than the provider's time, maxWait and two seconds
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

// shutdown ends server and guard together. The 25 seconds are fewer than the 30 that
// orchestrators usually leave between SIGTERM and SIGKILL. The caller closes the store
// afterwards.
func shutdown(server *http.Server, guard *idempotency.Guard) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- guard.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-recorded)
}

// openStore returns the store and a function that closes it.
func openStore(ctx context.Context, redisAddr string) (idempotency.Store, func(), error) {
	if redisAddr == "" {
		return idempotency.NewMemoryStore(), func() {}, nil
	}
	client := redis.NewClient(&redis.Options{
		Addr:                  redisAddr,
		ContextTimeoutEnabled: true,                   // the store uses the client itself, with its hooks
		ReadTimeout:           500 * time.Millisecond, // leaves time for another try after a silent connection
		DialTimeout:           500 * time.Millisecond,
		DialerRetries:         1, // an outage is refused after 0.1 s instead of 1.7 s of dialling
	})
	store := idempotency.NewRedisStore(client)
	closeStore := func() {
		_ = store.Close()
		_ = client.Close()
	}
	// A Redis that evicts keys forgets payments. Do not start with one.
	if err := store.Check(ctx); err != nil {
		closeStore()
		return nil, nil, fmt.Errorf("redis at %s: %w", redisAddr, err)
	}
	return store, closeStore, nil
}

// tryIt returns the commands to paste into a shell while the server runs.
func tryIt(addr string) string {
	return strings.ReplaceAll(`pay() { curl -si http://ADDR/$1 -H 'Authorization: Bearer token-of-alice' -H "Idempotency-Key: $2" -d '{"amount":'$3',"currency":"eur"}'; echo; }

pay charges order-1 100       # 201: the charge is made
pay charges order-1 100       # 201: the same answer, Idempotent-Replayed: true
pay charges order-1 999       # 409 key-reused: same key, other amount
pay charges order-2 100 & pay charges order-2 100; wait      # 201, and 409 in-flight (with -delay 2s)
pay transfers order-3 100 & pay transfers order-3 100; wait  # 201 twice: the second waits and is replayed
pay charges bad,key 100       # 400 key-invalid
curl -s http://ADDR/count     # what was really done
# http://ADDR/console/ shows in a browser what is held, and settles it
`, "ADDR", addr)
}
