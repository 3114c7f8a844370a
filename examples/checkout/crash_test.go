//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// The environment of the processes that the tests start. runMain makes this test binary run
// the program, and crashPoint names the moment at which the program kills itself.
const (
	runMain    = "CHECKOUT_TEST_RUN_MAIN"
	crashPoint = "CHECKOUT_TEST_CRASH"
)

func TestMain(m *testing.M) {
	point := os.Getenv(crashPoint)
	switch {
	case os.Getenv(runMain) == "":
		redistest.AtOnce(8)
		os.Exit(m.Run())
	case point == "":
		main()
	default:
		crashingShop(&crash{point: point})
	}
}

// crashingShop is the main function of a shop that dies at a chosen moment.
func crashingShop(c *crash) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := parseShop(os.Args[2:])
	st, _ := config.store() // nobody closes it in a process that is killed
	err := runShop(ctx, config, crashingStore{st, c}, crashingTransport{c})
	slog.Error("a shop that was to die has ended", "error", err)
	os.Exit(1)
}

// A crash is the moment at which a process dies. For example, "before effect charges 1" is
// the moment before the first request for a charge.
type crash struct {
	point string

	mu    sync.Mutex
	count map[string]int
}

// around makes a call. It dies before or after the call if that is the moment.
func (c *crash) around(what string, call func() error) error {
	c.mu.Lock()
	if c.count == nil {
		c.count = make(map[string]int)
	}
	c.count[what]++
	what = fmt.Sprintf("%s %d", what, c.count[what])
	c.mu.Unlock()
	c.die("before " + what)
	err := call()
	c.die("after " + what)
	return err
}

// die ends the process as kill -9 does: no deferred call runs, and nothing is flushed.
func (c *crash) die(moment string) {
	if moment == c.point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// A crashingStore is the shop's store. A step marked with AtMostOnce is saved twice: first
// its mark, then its result.
type crashingStore struct {
	*idempotency.RedisStore
	crash *crash
}

func (s crashingStore) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return s.crash.around("save "+name, func() error { return s.RedisStore.SaveStep(ctx, key, o, name, value) })
}

func (s crashingStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	return s.crash.around("complete", func() error { return s.RedisStore.Complete(ctx, key, o, c) })
}

// A crashingTransport is the shop's connection to the provider.
type crashingTransport struct{ crash *crash }

func (t crashingTransport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	err = t.crash.around("effect "+strings.TrimPrefix(r.URL.Path, "/"), func() error {
		resp, err = http.DefaultTransport.RoundTrip(r) //nolint:bodyclose // the client closes it
		return err
	})
	return resp, err
}
