package otelidempotency_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/otelidempotency"
)

// The service of the story: a process of its own that pays out.

const (
	storyRedis, storyBank = "STORY_REDIS", "STORY_BANK" // in the environment of a service
	storyRoute            = "POST /payouts"
	storyLease            = 3 * time.Second
)

// TestMain makes this test binary be the service if the environment says so.
func TestMain(m *testing.M) {
	if addr := os.Getenv(storyRedis); addr != "" {
		if err := servePayouts(addr, os.Getenv(storyBank)); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// payoutOptions are what a service and its operators have in common.
func payoutOptions() ([]idempotency.Option, error) {
	sealer, err := idempotency.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	return []idempotency.Option{
		idempotency.WithSealer(sealer), idempotency.WithKeptKeys(true), idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithLease(storyLease), idempotency.WithRoute(storyRoute),
	}, err
}

// servePayouts prints the address that it serves on, until its standard input ends.
func servePayouts(redisAddr, bank string) error {
	client := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	store := idempotency.NewRedisStore(client)
	opts, err := payoutOptions()
	if err != nil {
		return err
	}
	reporting, err := otelidempotency.Options()
	if err != nil {
		return err
	}
	guard, err := idempotency.New(store, scopeOf, append(reporting, opts...)...)
	if err != nil {
		return err
	}
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := payOut(r.Context(), bank); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
	}))
	// A middleware outside brings the caller's trace.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	fmt.Println(server.URL)
	_, err = io.Copy(io.Discard, os.Stdin)
	server.Close()
	return errors.Join(err, guard.Shutdown(context.Background()), store.Close(), client.Close())
}

// payOut books a payout, and has the bank wire it under a reference that is derived from the key.
func payOut(ctx context.Context, bank string) error {
	call := func(path string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, bank+path, http.NoBody)
			if err != nil {
				return "", err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return "", err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != http.StatusOK {
				return "", errors.New(resp.Status)
			}
			return "done", nil
		}
	}
	ref := "?ref=" + url.QueryEscape(idempotency.DeriveKey(ctx, "wire"))
	if _, err := idempotency.Step(ctx, "book", call("/book"+ref)); err != nil {
		return err
	}
	_, err := idempotency.Step(ctx, "wire", call("/wire"+ref), idempotency.AtMostOnce())
	return err
}

// A service is a process that pays out.
type service struct {
	url string
	cmd *exec.Cmd
}

// startService starts a process, which is killed at the end of the test.
func startService(t *testing.T, redisAddr, bank string) *service {
	t.Helper()
	s := &service{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	s.cmd.Env = append(os.Environ(), storyRedis+"="+redisAddr, storyBank+"="+bank)
	s.cmd.Stderr = io.Discard
	_, err := s.cmd.StdinPipe() // whose end ends the process, if the test is killed
	require.NoError(t, err)
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(s.kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	s.url = strings.TrimSpace(line)
	return s
}

// kill ends the process at once, as kill -9 does.
func (s *service) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// send sends the payout of that number, in a trace of its own.
func (s *service) send(n int) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url+"/payouts", strings.NewReader(fmt.Sprint("payout ", n)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Idempotency-Key", storyKey(n).Value)
	req.Header.Set("X-Tenant", storyKey(n).Scope)
	req.Header.Set("Traceparent", storyTrace(n).String())
	return http.DefaultClient.Do(req)
}

func storyKey(n int) idempotency.Key {
	return idempotency.Key{Scope: fmt.Sprint("tenant-", n), Value: fmt.Sprint("payout-", n)}
}

func storyTrace(n int) event.TraceContext {
	return event.TraceContext{TraceID: [16]byte{1, byte(n)}, SpanID: [8]byte{2, byte(n)}, Flags: 1}
}
