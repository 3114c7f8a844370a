//go:build unix

package consumers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// This file kills consumers, and starts others in their place. The sources that they consume are in
// sources_test.go.

// The environment of the consumers that TestKilledConsumer starts.
const (
	envSource   = "CONSUMER_TEST_SOURCE"
	envBroker   = "CONSUMER_TEST_BROKER"
	envRedis    = "CONSUMER_TEST_REDIS"
	envProvider = "CONSUMER_TEST_PROVIDER"
	envPoint    = "CONSUMER_TEST_KILL" // the moment at which the process kills itself, or ""
)

// envSweep, when it is set, has TestKilledConsumer try every moment, and every moment after it.
const envSweep = "CONSUMER_TEST_SWEEP"

const killLease = 500 * time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv(envSource) == "River" { // its records are in its own database
		fmt.Fprintln(os.Stderr, work(context.Background(), os.Getenv(envBroker)))
		os.Exit(1)
	}
	source, ok := sources[os.Getenv(envSource)]
	if !ok {
		os.Exit(m.Run())
	}
	st := idempotency.NewRedisStore(redis.NewClient(&redis.Options{Addr: os.Getenv(envRedis)}))
	guard, err := idempotency.New(killingStore{st}, idempotency.SharedScope, idempotency.WithLease(killLease))
	if err == nil {
		err = source.consume(context.Background(), os.Getenv(envBroker), guard)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// killAt ends the process, as kill -9 does, if this is the moment.
func killAt(point string) {
	if os.Getenv(envPoint) == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// afterAck is a moment that each source finds in its own way.
const afterAck = "after the acknowledgement"

// points are the moments at which a consumer may die, and how often a provider is asked then. It is asked
// again if a machine is too busy to renew a lease in time, unless the run is recorded.
var points = []struct {
	name  string
	asked int
}{
	{"before the claim", 1},
	{"after the claim", 1},
	{"before the effect", 1},
	{"after the effect", 2},
	{"before the record", 2},
	{"after the record", 1},
	{afterAck, 1},
}

// killingStore is a store around whose calls the process may die.
type killingStore struct{ idempotency.Store }

func (s killingStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	killAt("before the claim")
	defer killAt("after the claim")
	return s.Store.Claim(ctx, key, c)
}

func (s killingStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	killAt("before the record")
	err := s.Store.Complete(ctx, key, o, c)
	if err == nil {
		killAt("after the record")
	}
	return err
}

// charge is the effect of a message: a request to a provider that accepts keys.
func charge(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(envProvider), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Idempotency-Key", idempotency.DeriveKey(ctx, "charge"))
	killAt("before the effect")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	killAt("after the effect")
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// A provider counts effects: requests with the same key have one.
type provider struct {
	mu   sync.Mutex
	keys map[string]int
}

func (p *provider) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[r.Header.Get("Idempotency-Key")]++
}

// Whenever a consumer dies, the next one finishes the message, and it has one effect.
func TestKilledConsumer(t *testing.T) {
	t.Parallel()
	sweep := os.Getenv(envSweep) != ""
	for name := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, p := range points {
				if !sweep && name != "JetStream" && !slices.Contains([]string{"after the effect", "after the record", afterAck}, p.name) {
					continue
				}
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					requireOneEffect(t, name, p.asked, p.name)
				})
				for _, then := range points[i:] { // an earlier moment comes again only for a run that has left no record
					if !sweep || p.name == afterAck || p.name == then.name && p.name == "after the record" {
						continue
					}
					t.Run(p.name+", then "+then.name, func(t *testing.T) {
						t.Parallel()
						requireOneEffect(t, name, p.asked+then.asked-1, p.name, then.name)
					})
				}
			}
		})
	}
}

// requireOneEffect sends a message, kills a consumer of it at each of the moments in turn, and starts
// another that is left alone.
func requireOneEffect(t *testing.T, name string, asked int, kills ...string) {
	t.Helper()
	source := sources[name]
	redisAddr := redistest.Start(t).Addr
	broker, left := source.send(t, redisAddr)
	p := &provider{keys: make(map[string]int)}
	server := httptest.NewServer(p)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	start := func(point string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), envSource+"="+name, envBroker+"="+broker, envRedis+"="+redisAddr, envProvider+"="+server.URL, envPoint+"="+point)
		cmd.Stderr = &strings.Builder{}
		require.NoError(t, cmd.Start())
		return cmd
	}
	for _, point := range kills {
		cmd := start(point)
		err := cmd.Wait()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.NoError(t, ctx.Err(), "it did not come to this moment")
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), cmd.Stderr)
		if source.died != nil {
			source.died(t, broker)
		}
	}
	next := start("")
	defer func() {
		_ = next.Process.Kill()
		_ = next.Wait()
	}()
	require.Eventually(t, func() bool { return left() == 0 }, time.Minute, 20*time.Millisecond, next.Stderr)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.keys, 1, "one effect")
	for _, n := range p.keys {
		require.GreaterOrEqual(t, n, asked)
		if kills[0] == "after the record" {
			require.Equal(t, asked, n)
		}
	}
}
