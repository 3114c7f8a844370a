package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/idempotency/internal/pagetest"

	"example.com/idempotency/internal/guardtest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/redistest"
)

// bare serves the proxy of net/http alone, with the transport's limits of ours.
func bare(to string) error {
	target, err := url.Parse(to)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Info("listening", "on", l.Addr().String())
	return http.Serve(l, &httputil.ReverseProxy{
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target); p.SetXForwarded() },
	})
}

// cpu returns the processor time of a child so far, in hundredths of a second.
func cpu(t *testing.T, p *process) int {
	t.Helper()
	text := pagetest.File(t, fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return user + system
}

// most is how much of the bare proxy's time a request may take on memory. It is above what docs/explanation/performance.md
// says, because other work disturbs single turns.
const most = 1.3

// PROXY_OVERHEAD=1 measures how much processor time a request takes, in units of what it takes the proxy of
// net/http alone. Both take turns on the same machine.
func TestOverhead(t *testing.T) {
	if os.Getenv("PROXY_OVERHEAD") == "" {
		t.Skip("PROXY_OVERHEAD=1 measures it; Linux only")
	}
	answer := strings.Repeat("a", 1024)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	}))
	defer s.Close()
	const clients, each = 8, 500
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var keys atomic.Int64
	use := func(p *process) int {
		before := cpu(t, p)
		guardtest.Together(clients, func(int) {
			for range each {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.address(), strings.NewReader(answer))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer alice")
				r.Header.Set("Idempotency-Key", strconv.FormatInt(keys.Add(1), 10))
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 1024 {
					t.Error(n, err, resp.Status)
				}
				resp.Body.Close()
			}
		})
		return cpu(t, p) - before
	}
	plain := &process{args: []string{os.Args[0]}, env: []string{"PROXY_BARE=" + s.URL}, ready: listening}
	require.NoError(t, plain.start())
	t.Cleanup(plain.kill)
	stores := map[string]string{"memory": "{}"}
	if os.Getenv("REDIS_REQUIRED") == "1" {
		stores["redis"] = "{redis: 'redis://" + redistest.Start(t).Addr + "/0'}"
	}
	for name, st := range stores {
		p := newProxy(t, "to: "+s.URL+"\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstore: "+st+"\n")
		use(plain)
		use(p)
		turns := 1
		if name == "memory" { // of which something is demanded
			turns = 15
		}
		var ratios []float64
		var ours, theirs int
		for range turns {
			b, g := use(plain), use(p)
			theirs, ours = theirs+b, ours+g
			ratios = append(ratios, float64(g)/float64(b))
		}
		slices.Sort(ratios)
		if name == "memory" {
			require.Less(t, ratios[turns/2], most)
		}
		requests := float64(clients * each * turns)
		t.Logf("%s: %.2f times (%.2f to %.2f); %.0f µs a request, and %.0f µs without a guard", name, ratios[turns/2], ratios[0], ratios[turns-1], float64(ours)*1e4/requests, float64(theirs)*1e4/requests)
	}
}
