package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// A running is a proxy as the command runs it, in the process of the test.
type running struct {
	front, admin string
	log          *guardtest.LockedBuffer
	end          func() error
}

func run(t *testing.T, c Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{log: new(guardtest.LockedBuffer)}
	c.Listen = "127.0.0.1:0"
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c, r.log) }()
	r.end = func() error { cancel(); return <-done }
	t.Cleanup(cancel)
	require.Eventually(t, func() bool {
		first, _, _ := strings.Cut(r.log.String(), "\n")
		var l struct{ On, Admin string }
		if json.Unmarshal([]byte(first), &l) != nil {
			return false
		}
		r.front, r.admin = l.On, l.Admin
		return r.front != ""
	}, guardtest.Patience, time.Millisecond)
	return r
}

var activeRun = regexp.MustCompile(`(?m)^idempotency_runs_active\{.*\} 1$`)

// Operators see health, metrics and held keys at an address that clients do not have. An end waits for what is
// under way, and says meanwhile that nothing more should come.
func TestAdminAndEnd(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-finish
		}
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	c := Default()
	c.To, c.Admin, c.Recovery, c.Store.SQLite = s.URL, "127.0.0.1:0", "hold", filepath.Join(t.TempDir(), "records.db")
	p := run(t, c)
	admin := "http://" + p.admin
	ctx := t.Context()
	require.Equal(t, http.StatusInternalServerError, post(ctx, "http://"+p.front+"/fails", "a", "fails"))

	get := func(url string) guardtest.Reply {
		got, err := guardtest.Read(http.Get(url)) //nolint:bodyclose // Read closes it
		require.NoError(t, err)
		return got
	}
	require.Equal(t, http.StatusOK, get(admin+"/healthz").Status)
	require.Equal(t, http.StatusOK, get(admin+"/readyz").Status)
	metrics := get(admin + "/metrics").Body
	require.Contains(t, metrics, `idempotency_held`)
	require.Contains(t, metrics, "process_resident_memory_bytes")
	require.Contains(t, get(admin+"/console/").Body, "held")
	require.Equal(t, http.StatusOK, get("http://"+p.front+"/metrics").Status, "it is the service's")

	slow := make(chan int, 1)
	go func() { slow <- post(ctx, "http://"+p.front+"/slow", "a", "slow") }()
	ended := make(chan error, 1)
	require.Eventually(t, func() bool { return activeRun.MatchString(get(admin + "/metrics").Body) }, guardtest.Patience, time.Millisecond)
	go func() { ended <- p.end() }()
	require.Eventually(t, func() bool { return get(admin+"/readyz").Status == http.StatusServiceUnavailable }, guardtest.Patience, time.Millisecond)
	close(finish)
	require.Equal(t, http.StatusOK, <-slow)
	require.NoError(t, <-ended)
}

// post sends a POST of a caller with a key, and returns the status, or 0 without an answer.
func post(ctx context.Context, url, caller, key string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0
	}
	r.Header = http.Header{"Authorization": {caller}, "Idempotency-Key": {key}}
	got, err := guardtest.Read(http.DefaultClient.Do(r)) //nolint:bodyclose // Read closes it
	if err != nil {
		return 0
	}
	return got.Status
}

// The first lines of the log say what is not protected, and what is dangerous.
func TestDangersAreTold(t *testing.T) {
	t.Parallel()
	off := false
	c := Default()
	c.To, c.Admin, c.Scope = "http://127.0.0.1:9", "0.0.0.0:0", "shared"
	c.Routes = []Route{{Match: "/open", Protect: &off}}
	p := run(t, c)
	require.NoError(t, p.end())
	for _, want := range []string{
		memoryOnly, sharedByAll, "whoever reaches the admin address", `"match":"/open","protected":"nothing","passed":"everything"`,
		`"protected":"POST and PATCH with a key","passed":"requests without a key, other methods"`,
	} {
		require.Contains(t, p.log.String(), want)
	}

	c.Admin, c.Scope, c.Store.SQLite = "off", "authorization", filepath.Join(t.TempDir(), "records.db")
	p = run(t, c)
	require.NoError(t, p.end())
	require.NotContains(t, p.log.String(), "WARN")
}

// A proxy whose store cannot be opened, or whose address is taken, does not start.
func TestProxyThatCannotStart(t *testing.T) {
	t.Parallel()
	l := listen(t)
	defer l.Close()
	for want, change := range map[string]func(*Config){
		"to: name":       func(c *Config) { c.To = "" },
		"in use":         func(c *Config) { c.Listen = l.Addr().String() },
		"already in use": func(c *Config) { c.Listen, c.Admin = "127.0.0.1:0", l.Addr().String() },
		"refused":        func(c *Config) { c.Store.Redis = "redis://127.0.0.1:1/0" },
		"store: redis":   func(c *Config) { c.Store.Redis = "redis://user:secret@127.0.0.1:port" },
		"connect":        func(c *Config) { c.Store.Postgres = "postgres://user:secret@127.0.0.1:1/x" },
		"no such file":   func(c *Config) { c.Store.SQLite = "/no/such/dir/records.db" },
	} {
		c := Default()
		c.To, c.Admin, c.Listen = "http://127.0.0.1:9", "off", "127.0.0.1:0"
		change(&c)
		err := Run(t.Context(), c, io.Discard)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

// An awayStore cannot be read while it is away.
type awayStore struct {
	*idempotency.MemoryStore
	away bool
}

func (s *awayStore) Get(ctx context.Context, key string) (store.Record, error) {
	if s.away {
		return store.Record{}, errors.New("away")
	}
	return s.MemoryStore.Get(ctx, key)
}

// A proxy whose store is away is not ready.
func TestReadinessIsThatOfTheStore(t *testing.T) {
	t.Parallel()
	st := &awayStore{MemoryStore: idempotency.NewMemoryStore()}
	g, err := idempotency.New(st, authorization)
	require.NoError(t, err)
	require.NoError(t, new(admin).ready(t.Context(), g))
	st.away = true
	require.ErrorContains(t, new(admin).ready(t.Context(), g), "store")
}

// A page of another site cannot read what operators see under a name of its own.
func TestAdminHasNoOtherName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		listens, host string
		status        int
	}{
		{"127.0.0.1:8081", "127.0.0.1:8081", 200},
		{"127.0.0.1:8081", "localhost:9000", 200},
		{"[::1]:8081", "[::1]:8081", 200},
		{"localhost:8081", "127.0.0.1", 200},
		{"127.0.0.1:8081", "evil.example:8081", 421},
		{"localhost:8081", "localhost.evil.example", 421},
		{"127.0.0.1:8081", "", 421},
		{"0.0.0.0:8081", "proxy:8081", 200},
		{":8081", "proxy:8081", 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		knownHosts(c.listens, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, c)
	}

	c := Default()
	c.To, c.Admin = "http://127.0.0.1:9", "127.0.0.1:0"
	p := run(t, c)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.admin+"/readyz", nil)
	require.NoError(t, err)
	r.Host = "evil.example"
	got, err := guardtest.Read(http.DefaultClient.Do(r)) //nolint:bodyclose // Read closes it
	require.NoError(t, err)
	require.Equal(t, http.StatusMisdirectedRequest, got.Status)
	require.NoError(t, p.end())
}

// counted is a writer that knows how often it was written to.
type counted struct {
	guardtest.LockedBuffer
	writes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.LockedBuffer.Write(p)
}

// Lines of requests are written together, and late. Others are written at once, behind those that were made before.
func TestLinesOfRequestsAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := new(counted)
		l, flush := newLogs(out)
		requests := slog.New(l.requests)
		for range 3 {
			requests.Info("request")
		}
		time.Sleep(lateBy - 1)
		synctest.Wait()
		require.Zero(t, out.writes.Load())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.EqualValues(t, 1, out.writes.Load())
		require.Equal(t, 3, strings.Count(out.String(), "\n"))

		requests.Info("fourth")
		l.Warn("fifth")
		require.EqualValues(t, 2, out.writes.Load())
		_, after, _ := strings.Cut(out.String(), "fourth")
		require.Contains(t, after, "fifth")

		requests.Info("last")
		flush()
		require.Contains(t, out.String(), "last")
		time.Sleep(2 * lateBy)
		synctest.Wait()
		require.EqualValues(t, 3, out.writes.Load(), "nothing waits, so nothing is written")

		before := out.writes.Load()
		for out.writes.Load() == before { // without the clock
			requests.Info(strings.Repeat("a", together/8))
		}
		require.Less(t, len(out.String()), together*3/2)
	})
}
