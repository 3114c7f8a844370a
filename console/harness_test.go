package console

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// This file has a service with records in every state, and browsers that look at them.

var write = flag.Bool("write", false, "write the golden files")

func TestMain(m *testing.M) { os.Exit(guardtest.Main(m)) }

// A service is what has made the records.
type service struct {
	t      *testing.T
	store  store.Store
	guard  *idempotency.Guard
	events guardtest.Events
	log    bytes.Buffer
}

func serve(t *testing.T, opts ...idempotency.Option) *service {
	t.Helper()
	return serveOn(t, idempotency.NewMemoryStore(), opts...)
}

// filled is serve with records in every state but corrupt and claimed.
func filled(t *testing.T) *service {
	t.Helper()
	s := serve(t)
	s.fill()
	return s
}

func serveOn(t *testing.T, st store.Store, opts ...idempotency.Option) *service {
	t.Helper()
	s := &service{t: t, store: st}
	all := append([]idempotency.Option{
		idempotency.WithObserver(s.events.Observe), idempotency.WithLogger(slog.New(slog.NewTextHandler(&s.log, nil))),
	}, opts...)
	var err error
	s.guard, err = idempotency.New(s.store, guardtest.TenantScope, all...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.guard.Shutdown(context.Background()) })
	return s
}

// post sends a request with a key to a handler of a route.
func (s *service) post(route, key string, h http.HandlerFunc, opts ...idempotency.Option) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Tenant", "alice")
	w := httptest.NewRecorder()
	s.guard.With(append(opts, idempotency.WithRoute(route))...).Handler(h).ServeHTTP(w, r)
	return w
}

func (s *service) look(key string) idempotency.RecordInfo {
	s.t.Helper()
	info, err := s.guard.Lookup(s.t.Context(), idempotency.Key{Scope: "alice", Value: key})
	require.NoError(s.t, err)
	return info
}

// How handlers end.
func created(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"id":7,"card":"<b>4242</b>"}`))
}

var broken, afterStep, inDoubt = guardtest.Broken, guardtest.AfterStep, guardtest.InDoubt

var hold = idempotency.WithRecovery(idempotency.Hold)

// fill makes records in every state but corrupt and claimed.
func (s *service) fill() {
	s.t.Helper()
	s.post("POST /payouts", "payout-1", broken, hold)
	s.post("POST /payouts", "payout-2", broken, hold)
	s.post("POST /orders", "order-77", afterStep("ledger"), hold)
	s.post("POST /charges", "charge-5", inDoubt("charge"), hold)
	s.post("POST /orders", "order-78", created)
	s.post("POST /orders", "order-79", broken)
}

var (
	ada    = Actor{Name: "ada", Decide: true, ReadAnswers: true}
	viewer = Actor{Name: "vic"}
)

func as(a Actor) func(*http.Request) (Actor, error) {
	return func(*http.Request) (Actor, error) { return a, nil }
}

// A browser is an actor in front of a console.
type browser struct {
	t *testing.T
	h http.Handler
	// accept and change are what each request asks for, and how it differs from an ordinary one.
	accept string
	change func(*http.Request)
}

func (s *service) browser(o Options) *browser {
	s.t.Helper()
	h, err := New(s.guard, o)
	require.NoError(s.t, err)
	return &browser{t: s.t, h: h, accept: "text/html"}
}

func (s *service) as(a Actor) *browser { return s.browser(Options{Authorize: as(a)}) }

func (b browser) json() *browser { b.accept = "application/json"; return &b }

func (b *browser) do(method, target string, form url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, target, strings.NewReader(form.Encode()))
	r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost:8080"
	r.Header.Set("Accept", b.accept)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if b.change != nil {
		b.change(r)
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	return w
}

func (b *browser) get(target string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do(http.MethodGet, target, nil)
}

// decide sends the form of a record, with pairs of further fields.
func (b *browser) decide(i idempotency.RecordInfo, word string, more ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	form := url.Values{"seen": {i.Seen().String()}, "decision": {word}, "reason": {"the bank has nothing"}}
	for n := 0; n < len(more); n += 2 {
		form.Set(more[n], more[n+1])
	}
	return b.do(http.MethodPost, "/records/"+i.Record, form)
}

// changing are the parts of an output that differ from call to call.
var changing = []struct {
	of *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`/[0-9a-f]{32}`), "/0123456789abcdef0123456789abcdef"},
	{regexp.MustCompile(`("id"): ?"[0-9a-f]{32}"`), `$1:"00112233445566778899aabbccddeeff"`},
	{regexp.MustCompile(`(\d/\d/\d/\d/\d)/[0-9a-f]{16}`), "$1/0123456789abcdef"},
	{regexp.MustCompile(`("(?:seen|now)"): ?"(\d+)/[0-9a-f]{16}"`), `$1:"$2/0123456789abcdef"`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "2026-11-27T03:12:09Z"},
	{regexp.MustCompile(`("(?:age|oldest)_seconds"):\d+`), "$1:0"},
	{regexp.MustCompile(`("(?:ends_in|lease)_seconds"):\d+`), "$1:3600"},
	{regexp.MustCompile(`("(?:answered|call)_ms"):[0-9.]+`), "$1:0.1"},
	{regexp.MustCompile(`("used"):\d{4,}`), "$1:2000"},
	{regexp.MustCompile(`("next"):"[^"]+"`), `$1:"CURSOR"`},
	{regexp.MustCompile(`"versions":\{[^}]*\}`), `"versions":{}`},
	{regexp.MustCompile(`for \d+[smhd]`), "for 0s"},
	{regexp.MustCompile(`forgotten \d+s ago`), "forgotten 0s ago"},
}

// requireGolden compares JSON with a file of testdata.
func requireGolden(t *testing.T, name, got string) {
	t.Helper()
	for _, c := range changing {
		got = c.of.ReplaceAllString(got, c.to)
	}
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, []byte(got), "", "  "), got)
	guardtest.RequireGolden(t, filepath.Join("testdata", name+".json"), indented.String(), *write)
}
