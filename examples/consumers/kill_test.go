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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
)

// The environment of the consumers that TestKilledConsumer starts.
const (
	envNATS     = "CONSUMER_TEST_NATS"
	envRedis    = "CONSUMER_TEST_REDIS"
	envProvider = "CONSUMER_TEST_PROVIDER"
	envPoint    = "CONSUMER_TEST_KILL" // the moment at which the process kills itself, or ""
)

const killLease = 500 * time.Millisecond

func TestMain(m *testing.M) {
	if os.Getenv(envNATS) == "" {
		os.Exit(m.Run())
	}
	if err := consume(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// killAt ends the process, as kill -9 does, if this is the moment.
func killAt(point string) {
	if os.Getenv(envPoint) == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// killingStore is a store around whose calls the process may die.
type killingStore struct{ idempotency.Store }

func (s killingStore) Claim(ctx context.Context, key string, c idempotency.Claim) (idempotency.Record, error) {
	killAt("before the claim")
	defer killAt("after the claim")
	return s.Store.Claim(ctx, key, c)
}

func (s killingStore) Complete(ctx context.Context, key string, o idempotency.Owner, c idempotency.Completion) error {
	killAt("before the record")
	defer killAt("after the record")
	return s.Store.Complete(ctx, key, o, c)
}

// consume is the program of a consumer. Its effect is a request to a provider that accepts keys.
func consume() error {
	ctx := context.Background()
	conn, err := nats.Connect(os.Getenv(envNATS))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, "orders", "shipping")
	if err != nil {
		return err
	}
	store := idempotency.NewRedisStore(redis.NewClient(&redis.Options{Addr: os.Getenv(envRedis)}))
	guard, err := idempotency.New(killingStore{store}, idempotency.SharedScope, idempotency.WithLease(killLease))
	if err != nil {
		return err
	}
	ended := make(chan error)
	_, err = consumer.Consume(func(m jetstream.Msg) {
		JetStream(ctx, guard, charge, func(_ jetstream.Msg, err error) error {
			ended <- err
			return nil
		})(m)
	})
	if err != nil {
		return err
	}
	return <-ended
}

func charge(ctx context.Context, m jetstream.Msg) error {
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
	for point, asked := range map[string]int{
		"before the claim": 1, "after the claim": 1, "before the effect": 1, "after the effect": 2, "before the record": 2, "after the record": 1,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			url, js := startNATS(t)
			redisAddr := redistest.Start(t).Addr
			consumer, err := js.CreateConsumer(t.Context(), "orders", jetstream.ConsumerConfig{
				Durable: "shipping", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * killLease,
			})
			require.NoError(t, err)
			_, err = js.Publish(t.Context(), "orders", []byte("order 1"))
			require.NoError(t, err)
			p := &provider{keys: make(map[string]int)}
			server := httptest.NewServer(p)
			defer server.Close()
			start := func(point string) *exec.Cmd {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), envNATS+"="+url, envRedis+"="+redisAddr, envProvider+"="+server.URL, envPoint+"="+point)
				cmd.Stderr = os.Stderr
				require.NoError(t, cmd.Start())
				return cmd
			}
			err = start(point).Wait()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())

			next := start("")
			defer func() {
				_ = next.Process.Kill()
				_ = next.Wait()
			}()
			require.Eventually(t, func() bool {
				info, err := consumer.Info(t.Context())
				return err == nil && info.NumAckPending == 0 && info.NumPending == 0
			}, time.Minute, 50*time.Millisecond)
			p.mu.Lock()
			defer p.mu.Unlock()
			require.Len(t, p.keys, 1, "one effect")
			for _, n := range p.keys {
				require.Equal(t, asked, n)
			}
		})
	}
}
