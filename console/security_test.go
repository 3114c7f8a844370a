package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/pagetest"
	"example.com/idempotency/store"
)

// This file attacks the console.

// A countingStore counts what it is asked.
type countingStore struct {
	*idempotency.MemoryStore
	asked int
}

func (s *countingStore) Get(ctx context.Context, key string) (store.Record, error) {
	s.asked++
	return s.MemoryStore.Get(ctx, key)
}

func (s *countingStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	s.asked++
	return s.MemoryStore.List(ctx, q)
}

func (s *countingStore) Find(ctx context.Context, t store.Tag, q store.Query) (store.Page, error) {
	s.asked++
	return s.MemoryStore.Find(ctx, t, q)
}

// Whoever is not let in touches nothing and learns nothing.
func TestStrangers(t *testing.T) {
	st := &countingStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st)
	s.fill()
	i := s.look("payout-1")
	for err, status := range map[error]int{
		fmt.Errorf("token expired: %w", idempotency.ErrUnauthenticated): 401, errors.New("secret reason"): 403, idempotency.ErrTryLater: 503,
	} {
		b := s.browser(Options{Authorize: func(*http.Request) (Actor, error) { return ada, err }})
		st.asked = 0
		for _, got := range []*httptest.ResponseRecorder{
			b.get("/"), b.get("/store"), b.get("/nothing"), b.get("/records/" + i.Record), b.get("/group?record=" + i.Record), b.json().get("/"), b.get("/erase"), b.erase("tenant", "alice"), b.find("q", "alice"), b.find("tenant", "alice"), b.decide(i, "forget"), b.decide(i, "resume"),
		} {
			require.Equal(t, status, got.Code)
			require.NotContains(t, got.Body.String(), "secret reason")
			require.NotContains(t, got.Body.String(), "payout")
			require.NotContains(t, got.Body.String(), "ada")
		}
		require.Zero(t, st.asked)
	}
	require.Equal(t, i.Seen(), s.look("payout-1").Seen())
}

// Without a rule, only a browser on this machine looks, and it does not decide.
func TestOnThisMachine(t *testing.T) {
	s := filled(t)
	for name, c := range map[string]struct {
		addr, host, field string
		status            int
	}{
		"localhost":               {"127.0.0.1:5000", "localhost:8080", "", 200},
		"loopback":                {"[::1]:5000", "[::1]:8080", "", 200},
		"without a port":          {"127.0.0.7:5000", "127.0.0.1", "", 200},
		"another machine":         {"192.0.2.7:5000", "localhost:8080", "", 403},
		"a name that points here": {"127.0.0.1:5000", "evil.example:8080", "", 403},
		"a name like ours":        {"127.0.0.1:5000", "localhost.evil.example", "", 403},
		"behind a proxy":          {"127.0.0.1:5000", "localhost", "X-Forwarded-For", 403},
		"behind another":          {"127.0.0.1:5000", "localhost", "Forwarded", 403},
		"behind an old one":       {"127.0.0.1:5000", "localhost", "HTTP/1.0", 403},
		"no address":              {"@", "localhost", "", 403},
	} {
		b := s.browser(Options{})
		b.change = func(r *http.Request) {
			r.RemoteAddr, r.Host = c.addr, c.host
			if c.field == "HTTP/1.0" {
				r.ProtoMinor = 0
			} else if c.field != "" {
				r.Header.Set(c.field, "192.0.2.7")
			}
		}
		require.Equal(t, c.status, b.get("/").Code, name)
		i := s.look("payout-1")
		require.Equal(t, http.StatusForbidden, b.decide(i, "resume").Code, name)
		require.Equal(t, i.Seen(), s.look("payout-1").Seen(), name)
	}
}

// An actor does what the actor may.
func TestPermissions(t *testing.T) {
	s := filled(t)
	for _, actor := range []Actor{viewer, {Decide: true}} {
		b, i := s.as(actor), s.look("payout-1")
		for _, word := range []string{"final", "not-executed", "resume", "forget", "ask"} {
			require.Equal(t, http.StatusForbidden, b.decide(i, word, "status", "200").Code)
		}
		require.Equal(t, i.Seen(), s.look("payout-1").Seen())
		answer := b.get("/records/" + s.look("order-78").Record + "?answer=1")
		require.Equal(t, http.StatusForbidden, answer.Code)
		require.NotContains(t, answer.Body.String(), "4242")
		require.NotContains(t, b.get("/records/"+s.look("order-78").Record).Body.String(), "4242")
	}
	require.NotContains(t, s.as(viewer).get("/records/"+s.look("payout-1").Record).Body.String(), "<form method")
}

func TestRedact(t *testing.T) {
	s := filled(t)
	b := s.browser(Options{Authorize: as(ada), Redact: func(a *Answer) {
		if a.Route == "POST /orders" && a.Status == http.StatusCreated {
			a.Body = bytes.ReplaceAll(a.Body, []byte("4242"), []byte("****"))
		}
	}})
	for _, b := range []*browser{b, b.json()} {
		got := b.get("/records/" + s.look("order-78").Record + "?answer=1").Body.String()
		require.Contains(t, got, "****")
		require.NotContains(t, got, "4242")
	}
	// Each reading is told.
	require.Equal(t, 2, s.events.Count(event.AnswerRead))
	all := s.events.All()
	require.Equal(t, "ada", all[len(all)-1].Actor)
	require.Contains(t, s.log.String(), "recorded answer read")
	require.Contains(t, s.post("POST /orders", "order-78", broken).Body.String(), "4242", "retries get what was recorded")
}

// A form of another site does nothing, whatever the browser says of it.
func TestForeignForms(t *testing.T) {
	s := filled(t)
	i, group := s.look("payout-1"), s.ofOneMinute().together(payouts, "resume")
	for _, fields := range [][2]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
	} {
		b := s.as(ada)
		b.change = func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set(fields[0], fields[1])
		}
		for _, got := range []*httptest.ResponseRecorder{b.decide(i, "forget"), b.decide(i, "resume"), b.do(http.MethodPost, "/group", group), b.find("key", "a"), b.find("q", "a"), b.erase("tenant", "alice")} {
			require.Equal(t, http.StatusForbidden, got.Code)
		}
	}
	require.Equal(t, i.Seen(), s.look("payout-1").Seen())
	require.Equal(t, http.StatusRequestEntityTooLarge, s.as(ada).decide(i, "final", "status", "200", "body", strings.Repeat("x", inspect.MostForm)).Code)
	require.Equal(t, i.Seen(), s.look("payout-1").Seen())
}

func TestHeaders(t *testing.T) {
	s := serve(t)
	b := s.as(ada)
	for _, target := range []string{"/", "/store", "/find", "/erase", "/nothing", "/records/x", "/style.css", "/icon.svg"} {
		h := b.get(target).Header()
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'; style-src 'self';")
		require.Contains(t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.Equal(t, "DENY", h.Get("X-Frame-Options"))
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "same-origin", h.Get("Referrer-Policy"))
		if !strings.Contains(target, ".") {
			require.Equal(t, "no-store", h.Get("Cache-Control"))
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPost} {
		got := b.do(method, "/store", nil)
		require.Equal(t, http.StatusMethodNotAllowed, got.Code)
		require.Equal(t, "GET, HEAD", got.Header().Get("Allow"))
	}
	head := b.do(http.MethodHead, "/", nil)
	require.Equal(t, http.StatusOK, head.Code)
	require.Empty(t, head.Body.Bytes())
}

func TestPathTricks(t *testing.T) {
	s := filled(t)
	name := s.look("payout-1").Record
	for _, path := range []string{
		"/records/", "/records", "/records/..", "/records/../store", "/./store", "/a//store", "//evil.example/", "/records/%2e%2e/store", "/records%2f" + name,
		"/records/" + name + "/", "/records/" + name + "/x", "/records/" + name + "%00", "/records/" + strings.Repeat("A", 44), "/records/<script>",
		"/assets/style.css/..", "/layout.html", "/console.go", "/%2e%2e/console.go", "/style.css%2f..",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		var err error
		r.URL, err = url.ParseRequestURI(path)
		require.NoError(t, err)
		w := httptest.NewRecorder()
		s.as(ada).h.ServeHTTP(w, r)
		want := http.StatusNotFound
		if path == "/records/" {
			want = http.StatusOK // a first screen, as every address that ends in a slash
		}
		if path == "/records/"+name+"/" {
			want = http.StatusOK
		}
		require.Equal(t, want, w.Code, path)
		require.NotContains(t, w.Body.String(), "<script>")
	}
}

// All links work, wherever the console is mounted.
func TestMounts(t *testing.T) {
	s := filled(t)
	h := s.as(ada).h
	stripped, whole := http.NewServeMux(), http.NewServeMux()
	stripped.Handle("/ops/console/", http.StripPrefix("/ops/console", h))
	whole.Handle("/ops/console/", h)
	for name, at := range map[string]struct {
		h     http.Handler
		first string
	}{"root": {h, "/"}, "stripped": {stripped, "/ops/console/"}, "whole": {whole, "/ops/console/"}} {
		require.Greater(t, pagetest.Walk(t, at.h, at.first), 10, name)
	}
	for _, pattern := range []string{"GET /ops/console", "example.com/ops/console", "/{tenant}/console"} {
		exact := http.NewServeMux()
		exact.Handle(pattern, h)
		w := httptest.NewRecorder()
		exact.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/console", nil))
		require.Equal(t, "./console/", w.Header().Get("Location"), pattern)
	}
	bare := http.StripPrefix("/ops/console", h)
	w := httptest.NewRecorder()
	bare.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/console?to=https://evil.example/x", nil))
	require.Equal(t, "./console/", w.Header().Get("Location"))
}

// When the store is away, the page says so, and the status does.
func TestStoreIsAway(t *testing.T) {
	st := &downStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st)
	s.fill()
	i := s.look("payout-1")
	st.down = true
	for _, target := range []string{"/", "/store", "/records/" + i.Record} {
		got := s.as(ada).get(target)
		require.Equal(t, http.StatusServiceUnavailable, got.Code, target)
		require.Contains(t, got.Body.String(), "The store does not answer: Connection refused")
		require.Contains(t, s.as(ada).json().get(target).Body.String(), `"code":6`)
	}
	require.Equal(t, http.StatusServiceUnavailable, s.as(ada).decide(i, "resume").Code)
}

type downStore struct {
	*idempotency.MemoryStore
	down bool
}

var errDown = errors.New("connection refused")

func (s *downStore) Get(ctx context.Context, key string) (store.Record, error) {
	if s.down {
		return store.Record{}, errDown
	}
	return s.MemoryStore.Get(ctx, key)
}

func (s *downStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	if s.down {
		return store.Page{}, errDown
	}
	return s.MemoryStore.List(ctx, q)
}

func TestNewRefuses(t *testing.T) {
	_, err := New(nil, Options{})
	require.Error(t, err)
	guard, err := idempotency.New(&guardtest.FaultStore{}, idempotency.SharedScope)
	require.NoError(t, err)
	_, err = New(guard, Options{})
	require.ErrorIs(t, err, idempotency.ErrNoInspector)
}
