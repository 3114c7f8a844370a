// Command checkout is a shop whose checkout has three effects: charge, shipment and mail. A
// retry is safe even if the shop dies between any two of them.
//
//	go run ./examples/checkout provider -addr 127.0.0.1:9090
//	go run ./examples/checkout shop -addr 127.0.0.1:8080 -provider http://127.0.0.1:9090 -redis 127.0.0.1:6379
//	curl -i http://127.0.0.1:8080/checkout -H 'Idempotency-Key: order-1' -d '{"id":"order-1","amount":100}'
//
// Kill the shop at any moment, start it again, and send the request again.
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
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "provider":
		err = runProvider(ctx, os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == "shop":
		err = openShop(ctx, parseShop(os.Args[2:]))
	default:
		err = errors.New("usage: checkout provider|shop [flags]")
	}
	if err != nil {
		slog.Error("checkout", "error", err)
		os.Exit(1)
	}
}

func runProvider(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("provider", flag.ExitOnError)
	addr := flags.String("addr", "127.0.0.1:9090", "`address` to listen on")
	_ = flags.Parse(args) // it exits on an error
	return serve(ctx, *addr, newProvider(), func(server *http.Server) error {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 25*time.Second)
		defer cancel()
		return server.Shutdown(grace)
	})
}

type shopConfig struct {
	addr, redis, provider string
	lease, timeout        time.Duration
	resolve               bool
}

func parseShop(args []string) shopConfig {
	var c shopConfig
	flags := flag.NewFlagSet("shop", flag.ExitOnError)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flags.StringVar(&c.redis, "redis", "127.0.0.1:6379", "`host:port` of Redis")
	flags.StringVar(&c.provider, "provider", "http://127.0.0.1:9090", "`URL` of the provider")
	flags.DurationVar(&c.lease, "lease", 10*time.Second, "how long a key stays blocked after its process died")
	flags.DurationVar(&c.timeout, "timeout", 5*time.Second, "how long the provider may take")
	flags.BoolVar(&c.resolve, "resolve", true, "ask the provider about outcomes that are unknown")
	_ = flags.Parse(args) // it exits on an error
	return c
}

// store returns the store and a function that closes it.
func (c shopConfig) store() (*idempotency.RedisStore, func()) {
	client := redis.NewClient(&redis.Options{
		Addr:                  c.redis,
		ContextTimeoutEnabled: true,                   // the store uses the client itself, with its hooks
		ReadTimeout:           500 * time.Millisecond, // leaves time for another try after a silent connection
		DialTimeout:           500 * time.Millisecond,
		DialerRetries:         1, // an outage is refused after 0.1 s instead of 1.7 s of dialling
	})
	store := idempotency.NewRedisStore(client)
	return store, func() {
		_ = store.Close()
		_ = client.Close()
	}
}

// openShop runs a shop on its store, which it closes last. A shop whose Redis may forget
// records does not open.
func openShop(ctx context.Context, c shopConfig) error {
	store, closeStore := c.store()
	defer closeStore()
	if err := store.Check(ctx); err != nil {
		return err
	}
	return runShop(ctx, c, store, http.DefaultTransport)
}

// runShop serves until ctx ends. The test passes a store and a transport that fail.
func runShop(ctx context.Context, c shopConfig, store idempotency.Store, transport http.RoundTripper) error {
	s := &shop{provider: providerClient{
		url:  c.provider,
		http: &http.Client{Transport: transport, Timeout: c.timeout},
	}}
	opts := []idempotency.Option{idempotency.WithRequired(true), idempotency.WithLease(c.lease)}
	if c.resolve {
		opts = append(opts, idempotency.WithResolver(s.resolve))
	}
	// The one client of this shop is its own front end.
	guard, err := idempotency.New(store, idempotency.SharedScope, opts...)
	if err != nil {
		return err
	}
	return serve(ctx, c.addr, s.routes(guard), func(server *http.Server) error { return shutdown(server, guard) })
}

// shutdown ends server and guard together. The caller closes the store afterwards.
func shutdown(server *http.Server, guard *idempotency.Guard) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- guard.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-recorded)
}

// serve prints its address and serves until ctx ends. Then it calls finish.
func serve(ctx context.Context, addr string, h http.Handler, finish func(*http.Server) error) error {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute, // more than all steps together take
		IdleTimeout:       2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	return finish(server)
}
