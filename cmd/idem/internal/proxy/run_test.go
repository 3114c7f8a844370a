package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
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

	status, _ := get(t, admin+"/healthz")
	require.Equal(t, http.StatusOK, status)
	status, body := get(t, admin+"/readyz")
	require.Equal(t, http.StatusOK, status, body)
	_, body = get(t, admin+"/metrics")
	require.Contains(t, body, `idempotency_held`)
	require.Contains(t, body, "process_resident_memory_bytes")
	status, body = get(t, admin+"/console/")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "held")
	status, _ = get(t, "http://"+p.front+"/metrics")
	require.Equal(t, http.StatusOK, status, "it is the service's")

	slow := make(chan int, 1)
	go func() { slow <- post(ctx, "http://"+p.front+"/slow", "a", "slow") }()
	ended := make(chan error, 1)
	require.Eventually(t, func() bool { _, body := get(t, admin+"/metrics"); return activeRun.MatchString(body) }, guardtest.Patience, time.Millisecond)
	go func() { ended <- p.end() }()
	require.Eventually(t, func() bool {
		status, _ := get(t, admin+"/readyz")
		return status == http.StatusServiceUnavailable
	}, guardtest.Patience, time.Millisecond)
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
	r.Header.Set("Authorization", caller)
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
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
		`"protected":"POST and PATCH with a key","passed":"requests without a key, other methods, upgrades"`,
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
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
	require.NoError(t, p.end())
}
