//go:build unix

package soak

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redistest"
)

// runAPI in the environment makes this test binary be the program that it tests: the
// processes of the tests are built, with or without the race detector, as the tests are.
const runAPI = "SOAK_RUN_API"

func TestMain(m *testing.M) {
	if os.Getenv(runAPI) != "" {
		os.Exit(apiMain())
	}
	redistest.AtOnce(8)
	os.Exit(m.Run())
}

// apiMain is the program. It prints its address when it listens and ends at SIGTERM, in
// an orderly way, or at once when its standard input does: whoever started it has gone.
func apiMain() int {
	var c config
	flag.StringVar(&c.name, "name", "", "what the ledger calls this process")
	flag.StringVar(&c.redis, "redis", "", "address of Redis")
	flag.StringVar(&c.ledger, "ledger", "", "URL of the ledger")
	flag.DurationVar(&c.lease, "lease", 0, "lease of the guard")
	flag.DurationVar(&c.grace, "grace", 0, "how long a shutdown may take")
	flag.IntVar(&c.version, "version", 0, "of an api that shows what is true from outside, if not 0")
	flag.StringVar(&c.crash, "crash", "", "moment at which the process kills itself")
	flag.Parse()

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	redis.SetLogger(quiet{}) // the library reports what matters of a failing store
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	slog.SetDefault(log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := c.serve(ctx, func(url string) { fmt.Println(url) }); err != nil {
		log.Error("api", "error", err)
		return 1
	}
	return 0
}

type config struct {
	name, redis, ledger string
	lease, grace        time.Duration
	crash               string
	version             int
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
