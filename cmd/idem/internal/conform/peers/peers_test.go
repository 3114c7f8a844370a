package peers

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fiber2 "github.com/gofiber/fiber/v2"
	idempotency2 "github.com/gofiber/fiber/v2/middleware/idempotency"
	fiber3 "github.com/gofiber/fiber/v3"
	idempotency3 "github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/cmd/idem/internal/conform"
	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/internal/pagetest"
	"example.com/idempotency/policy"
)

var write = flag.Bool("write", false, "write docs/reference/conformance.md")

const file = "../../../../../docs/reference/conformance.md"

const head = `# What servers keep

For those who choose a server, or build one. At the end, you know what ` + "`idem conform`" + ` has found of this library and of others, with the same requests for all.

A test makes this page anew with each change: ` + "`go test ./cmd/idem/internal/conform/peers -write`" + ` writes it. [How to test your own server](../how-to/conform.md).

| column | what it is |
|---|---|
%s
Each has a handler that takes a moment, counts its effects, and answers 201 with an ID. Each is as its documentation sets it up, with records in memory. **no** is a MUST of the profile that fails, and no a SHOULD, or something that is told for information. A dash was not tried: the server does not take such a request, does not promise it, or does not show it. Rows in which nobody was tried are left out, and so is what a policy says where it is what happens: of the guard that publishes one, that is tried too, and counts at the end.

`

// taking is how long an effect takes.
const taking = 200 * time.Millisecond

// programs is where the programs are built.
var programs string

// A peer is a server that is tested.
type peer struct {
	name, is  string
	keyHeader string
	start     func(t *testing.T) config
}

type config struct{ url, path, other, pointer, credential, second string }

var peers = []peer{
	{"payments", "`examples/payments`, POST /charges", "", payments("/charges", "/payouts")},
	{"payments, waiting", "the same, POST /transfers, which has `WithWait`", "", payments("/transfers", "/charges")},
	{"guard, 422", "a guard with `WithMismatchStatus(422)` and a published policy", "", guarded},
	{"proxy", "`idem proxy` in front of a service on Express, which knows nothing of keys", "", proxied},
	{"fiber 3", "fiber v3.1.0 with its own middleware `idempotency`", "X-Idempotency-Key", withFiber3},
	{"fiber 2", "fiber v2.52.15, the same", "X-Idempotency-Key", withFiber2},
	{"express", "Express 5.3.0 with express-idempotency 1.0.6", "", withExpress},
	{"bare", "net/http without protection", "", bare},
}

func TestMain(m *testing.M) {
	flag.Parse()
	programs, _ = os.MkdirTemp("", "peers") // without it, the build fails
	build := exec.Command("go", "build", "-o", programs+"/", "./examples/payments", "./cmd/idem")
	build.Dir, build.Stderr = "../../../../..", os.Stderr
	code := 1
	if build.Run() == nil {
		code = m.Run()
	}
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// The command that the page shows finds no MUST that fails.
func TestPage(t *testing.T) {
	text := pagetest.File(t, "../../../../../docs/how-to/conform.md")
	_, command, found := strings.Cut(pagetest.Block(t, string(text), "conform"), "idem ")
	require.True(t, found)
	server := payments("/charges", "")(t)
	command = strings.ReplaceAll(command, "http://127.0.0.1:8080", server.url)
	out, err := exec.Command("sh", "-c", filepath.Join(programs, "idem")+" "+command).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, `MUST: 4\d hold, 0 fail`, string(out))
}

func TestMatrix(t *testing.T) {
	if os.Getenv("NODE_MODULES") == "" {
		t.Skip("NODE_MODULES does not say where Express and express-idempotency are") // scripts/test.sh does, and knows these words
	}
	var reports []*report.Report
	var all sync.WaitGroup
	for i, profile := range conform.Profiles() {
		reports = append(reports, make([]*report.Report, len(peers))...)
		for j, p := range peers {
			all.Go(func() { reports[i*len(peers)+j] = examine(t, p, profile.Name) })
		}
	}
	all.Wait()
	require.NotContains(t, reports, (*report.Report)(nil))
	var text strings.Builder
	var columns strings.Builder
	for _, p := range peers {
		fmt.Fprintf(&columns, "| %s | %s |\n", p.name, p.is)
	}
	fmt.Fprintf(&text, head, columns.String())
	require.NoError(t, report.Print(&text, "markdown", reports...))
	if *write {
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o644))
	}
	want := pagetest.File(t, file)
	require.Equal(t, string(want), text.String(), "go test ./cmd/idem/internal/conform/peers -write writes it")
}

// examine tests a server that nobody else tests. It returns nil if it cannot.
func examine(t *testing.T, p peer, profile string) *report.Report {
	t.Helper()
	c := p.start(t)
	cfg := conform.Config{
		Template: conform.Template{
			Method: http.MethodPost, URL: c.url + c.path, Body: `{"amount":{{unique}},"currency":"eur"}`,
			Header: http.Header{"Content-Type": {"application/json"}},
		},
		Profile: profile, KeyHeader: p.keyHeader, OtherPath: c.other, Credential: c.second,
		Effects: conform.Source{URL: c.url + "/count", Pointer: c.pointer},
		AtOnce:  5, MaxRequests: 1000, Rate: 100_000, Timeout: time.Minute, Patience: 2 * time.Second, Late: time.Second,
	}
	if c.credential != "" {
		cfg.Template.Header.Set("Authorization", c.credential)
	}
	r, err := conform.Run(t.Context(), cfg)
	if !assert.NoError(t, err) {
		return nil
	}
	r.Name = p.name
	return r
}

// payments runs the example as its readers do.
func payments(path, other string) func(t *testing.T) config {
	return func(t *testing.T) config {
		t.Helper()
		line := run(t, (*exec.Cmd).StdoutPipe, filepath.Join(programs, "payments"), "-addr", "127.0.0.1:0", "-delay", taking.String())
		url := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
		return config{url, path, other, path, "Bearer token-of-alice", "Authorization: Bearer token-of-bob"}
	}
}

// run runs a program until the end of the test. It returns the first line that it writes to one of its outputs.
func run(t *testing.T, output func(*exec.Cmd) (io.ReadCloser, error), program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	pipe, err := output(cmd)
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	out := bufio.NewReader(pipe)
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return line
}

func proxied(t *testing.T) config {
	t.Helper()
	var listening struct{ On string }
	line := run(t, (*exec.Cmd).StderrPipe, filepath.Join(programs, "idem"), "proxy", "--to", onExpress(t), "--listen", "127.0.0.1:0", "--admin", "off")
	require.NoError(t, json.Unmarshal([]byte(line), &listening), line)
	return config{"http://" + listening.On, "/charges", "/payouts", "/count", "Bearer alice", "Authorization: Bearer bob"}
}

func withExpress(t *testing.T) config {
	t.Helper()
	return config{onExpress(t, "express-idempotency"), "/charges", "/payouts", "/count", "Bearer alice", "Authorization: Bearer bob"}
}

// onExpress starts a service on Express, and returns its address.
func onExpress(t *testing.T, protectedBy ...string) string {
	t.Helper()
	args := append([]string{"testdata/service.cjs", strconv.FormatInt(taking.Milliseconds(), 10)}, protectedBy...)
	return "http://127.0.0.1:" + strings.TrimSpace(run(t, (*exec.Cmd).StdoutPipe, "node", args...))
}

// A counter is the effects of a server.
type counter struct{ made atomic.Int64 }

// pay makes an effect, and returns the answer to it.
func (c *counter) pay() []byte {
	c.made.Add(1)
	<-time.After(taking) // so that requests meet
	text, _ := json.Marshal(map[string]string{"id": rand.Text()})
	return text
}

func (c *counter) count() []byte {
	text, _ := json.Marshal(map[string]int64{"count": c.made.Load()})
	return text
}

// serve serves a handler of net/http under two paths.
func (c *counter) serve(t *testing.T, protect func(h http.Handler, mux *http.ServeMux, url string) http.Handler) config {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewUnstartedServer(mux)
	url := "http://" + server.Listener.Addr().String()
	handler := protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := c.pay()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", r.URL.Path)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(id)
	}), mux, url)
	for _, pattern := range []string{"POST /charges", "PATCH /charges", "POST /payouts"} {
		mux.Handle(pattern, handler)
	}
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(c.count()) })
	server.Start()
	t.Cleanup(server.Close)
	return config{url, "/charges", "/payouts", "/count", "Bearer alice", "Authorization: Bearer bob"}
}

func bare(t *testing.T) config {
	return new(counter).serve(t, func(h http.Handler, _ *http.ServeMux, _ string) http.Handler { return h })
}

func guarded(t *testing.T) config {
	caller := func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
	return new(counter).serve(t, func(h http.Handler, mux *http.ServeMux, url string) http.Handler {
		guard, err := idempotency.New(
			idempotency.NewMemoryStore(), caller, idempotency.WithMismatchStatus(http.StatusUnprocessableEntity), idempotency.WithPolicyURL(url+"/idempotency"),
			idempotency.WithExpiryHeader("Idempotency-TTL"), idempotency.WithLogger(slog.New(slog.DiscardHandler)),
		)
		require.NoError(t, err)
		mux.Handle("GET /idempotency", policy.Handler(guard.Policy()))
		return guard.Handler(h)
	})
}

func withFiber3(t *testing.T) config {
	c, app := new(counter), fiber3.New()
	app.Use(idempotency3.New())
	pay := func(ctx fiber3.Ctx) error {
		id := c.pay()
		ctx.Set("Content-Type", "application/json")
		ctx.Set("Location", ctx.Path())
		return ctx.Status(http.StatusCreated).Send(id)
	}
	app.Post("/charges", pay)
	app.Patch("/charges", pay)
	app.Post("/payouts", pay)
	app.Get("/count", func(ctx fiber3.Ctx) error { return ctx.Send(c.count()) })
	return served(t, func(l net.Listener) error { return app.Listener(l, fiber3.ListenConfig{DisableStartupMessage: true}) }, app.Shutdown)
}

func withFiber2(t *testing.T) config {
	c, app := new(counter), fiber2.New(fiber2.Config{DisableStartupMessage: true})
	app.Use(idempotency2.New())
	pay := func(ctx *fiber2.Ctx) error {
		id := c.pay()
		ctx.Set("Content-Type", "application/json")
		ctx.Set("Location", ctx.Path())
		return ctx.Status(http.StatusCreated).Send(id)
	}
	app.Post("/charges", pay)
	app.Patch("/charges", pay)
	app.Post("/payouts", pay)
	app.Get("/count", func(ctx *fiber2.Ctx) error { return ctx.Send(c.count()) })
	return served(t, app.Listener, app.Shutdown)
}

// served lets a server that is not one of net/http listen until the end of the test.
func served(t *testing.T, serve func(net.Listener) error, stop func() error) config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = serve(l) }()
	t.Cleanup(func() { _ = stop() })
	return config{"http://" + l.Addr().String(), "/charges", "/payouts", "/count", "Bearer alice", "Authorization: Bearer bob"}
}
