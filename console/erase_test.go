package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file erases tenants.

// erase sends a form with pairs of fields to the screen that erases.
func (b *browser) erase(pairs ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	form := url.Values{}
	for n := 0; n < len(pairs); n += 2 {
		form.Set(pairs[n], pairs[n+1])
	}
	return b.do(http.MethodPost, "/erase", form)
}

// count returns what would be erased of alice.
func (b *browser) count(pairs ...string) inspect.Erased {
	b.t.Helper()
	return b.countOf("alice", pairs...)
}

func (b *browser) countOf(tenant string, pairs ...string) (would inspect.Erased) {
	b.t.Helper()
	got := b.json().erase(append(pairs, "tenant", tenant)...)
	require.Equal(b.t, http.StatusOK, got.Code, got.Body)
	require.NoError(b.t, json.Unmarshal(got.Body.Bytes(), &would))
	require.True(b.t, would.DryRun)
	return would
}

// left returns how many records of a tenant there are.
func (s *service) left(tenant string) int {
	s.t.Helper()
	names, _ := s.as(viewer).found("tenant", tenant)
	return len(names)
}

// tenants makes records of two tenants: of alice, 2 completed, 1 released, 4 held and 1 in flight.
func tenants(t *testing.T, opts ...idempotency.Option) *service {
	t.Helper()
	s := serve(t, append(opts, findable)...)
	s.fill()
	s.post("POST /orders", "order-80", created)
	s.order(s.guard, "bob", "bobs", "", created)
	running, end := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(end) })
	go s.post("POST /orders", "slow", func(http.ResponseWriter, *http.Request) { close(running); <-end })
	<-running
	return s
}

// A tenant is counted, and then erased with a reason, which the log and an event for each record have. A form that is sent twice is
// one erasure.
func TestErase(t *testing.T) {
	s := tenants(t)
	b := s.as(ada)
	require.Contains(t, b.get("/store").Body.String(), `action="./erase"`)
	page := b.erase("tenant", "alice").Body.String()
	for _, part := range []string{
		"2 completed keys could run again", "Held, left</dt><dd>4.", "In flight, left</dt><dd>1.", "Erase 3 records of the tenant, for good",
		`name="seen" value="2/1/0/4/1/`, `name="reason"`, "Nothing was changed by counting.",
	} {
		require.Contains(t, page, part)
	}
	require.Equal(t, 8, s.left("alice"), "nothing was erased")
	require.Zero(t, s.events.Count(event.Forgotten))

	would := b.count()
	form := []string{"tenant", "alice", "seen", would.Seen, "decision", "erase", "reason", "ticket <4711>"}
	for range 2 {
		got := b.erase(form...)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		require.Contains(t, got.Body.String(), "Erased 2 completed, whose retries run again, 1 without an answer, and 0 held. Left: 4 held, 1 in flight, and 0 that have changed meanwhile.")
		require.Contains(t, got.Body.String(), "ticket &lt;4711&gt;")
	}
	require.Equal(t, 5, s.left("alice"))
	require.Equal(t, 1, s.left("bob"))
	require.Equal(t, 3, s.events.Count(event.Forgotten))
	for _, e := range s.events.All() {
		if e.Kind == event.Forgotten {
			require.Equal(t, []string{"ada", "ticket <4711>"}, []string{e.Actor, e.Reason})
		}
	}
	require.Equal(t, 3, strings.Count(s.log.String(), `actor=ada reason="ticket <4711>"`))
	require.Equal(t, http.StatusConflict, s.as(Actor{Name: "bea", Decide: true}).erase(form...).Code, "another actor has not erased")

	would = b.count("also_held", "1")
	require.Equal(t, [3]int{0, 4, 1}, [3]int{would.HeldLeft, would.Held, would.InFlight})
	require.Equal(t, http.StatusConflict, b.erase("tenant", "alice", "seen", would.Seen, "decision", "erase", "reason", "x").Code, "held keys are erased only if the form says so")
	require.Equal(t, http.StatusOK, b.erase("tenant", "alice", "also_held", "1", "seen", would.Seen, "decision", "erase", "reason", "x").Code)
	require.Equal(t, 1, s.left("alice"), "what runs is left")
}

func TestEraseJSON(t *testing.T) {
	s := tenants(t)
	b := s.as(ada).json()
	requireGolden(t, "erase-count", b.erase("tenant", "alice").Body.String())
	seen := b.count().Seen
	form := []string{"tenant", "alice", "seen", seen, "decision", "erase", "reason", "ticket 4711"}
	s.post("POST /orders", "order-81", created)
	requireGolden(t, "erase-changed", b.erase(form...).Body.String())
	form[3] = b.count().Seen
	requireGolden(t, "erase", b.erase(form...).Body.String())
}

// What is younger than the form says is left and told; what grows old after it was counted does not change what was seen.
func TestEraseLeavesWhatIsYounger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, findable)
		s.order(s.guard, "alice", "1", "", created)
		time.Sleep(time.Hour)
		s.order(s.guard, "alice", "2", "", created)
		b := s.as(ada)
		would := b.count("older_than", "90m")
		require.Equal(t, [2]int{0, 2}, [2]int{would.Completed, would.Younger})
		would = b.count("older_than", "1h")
		require.Equal(t, [3]int{1, 1, 3600}, [3]int{would.Completed, would.Younger, int(would.OlderThan)})
		page := b.erase("tenant", "alice", "older_than", "1h").Body.String()
		for _, part := range []string{"Younger, left</dt><dd>1. Answers end by themselves", `name="older_than" value="1h"`, "Erase 1 record of the tenant"} {
			require.Contains(t, page, part)
		}
		form := func(seen string) []string {
			return []string{"tenant", "alice", "older_than", "1h", "seen", seen, "decision", "erase", "reason", "x"}
		}
		numbers, before, _ := strings.Cut(would.Seen, "@")
		later, err := time.Parse(time.RFC3339Nano, before)
		require.NoError(t, err)
		for seen, status := range map[string]int{
			numbers + "@" + later.Add(time.Hour).Format(time.RFC3339Nano): http.StatusBadRequest, // younger ones, too
			numbers + "@now":         http.StatusBadRequest,
			"2/0/0/0/0/00@" + before: http.StatusConflict,
		} {
			require.Equal(t, status, b.erase(form(seen)...).Code, seen)
		}
		time.Sleep(time.Hour)
		got := b.erase(form(would.Seen)...)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		require.Contains(t, got.Body.String(), "Erased 1 completed, whose retries run again, 0 without an answer, and 0 held. Left: 0 held, 0 in flight, 1 younger than 60m, and 0 that have changed meanwhile.")
		require.Equal(t, 1, s.left("alice"))
		require.Equal(t, 1, b.count("older_than", "1h").Completed, "now it is old enough")
		for _, age := range []string{"x", "0s", "-1h"} {
			require.Equal(t, http.StatusUnprocessableEntity, b.erase("tenant", "alice", "older_than", age).Code)
		}
	})
}

// What was not counted is not erased, and a form whose numbers are not those of now erases nothing.
func TestEraseWhatHasChanged(t *testing.T) {
	for name, change := range map[string]func(*service){
		"one more":          func(s *service) { s.post("POST /orders", "order-81", created) },
		"one less":          func(s *service) { s.forget("order-78") },
		"another one":       func(s *service) { s.forget("order-78"); s.post("POST /orders", "order-81", created) },
		"the same key":      func(s *service) { s.forget("order-78"); s.post("POST /orders", "order-78", created) },
		"one more held":     func(s *service) { s.post("POST /payouts", "payout-3", broken, hold) },
		"one held, settled": func(s *service) { require.Equal(t, 200, s.as(ada).decide(s.look("payout-1"), "resume").Code) },
	} {
		t.Run(name, func(t *testing.T) {
			s := tenants(t)
			b := s.as(ada)
			seen := b.count().Seen
			change(s)
			there, before := s.left("alice"), s.events.Count(event.Forgotten)
			got := b.erase("tenant", "alice", "seen", seen, "decision", "erase", "reason", "ticket 4711")
			require.Equal(t, http.StatusConflict, got.Code)
			require.Contains(t, got.Body.String(), "Changed meanwhile, and nothing was erased. Now it would erase")
			require.Contains(t, got.Body.String(), "ticket 4711</textarea>", "the reason is still there")
			now := b.count().Seen
			require.NotEqual(t, seen, now)
			require.Contains(t, got.Body.String(), `name="seen" value="`+now+`"`)
			require.Equal(t, there, s.left("alice"))
			require.Equal(t, before, s.events.Count(event.Forgotten))
			require.Equal(t, http.StatusOK, b.erase("tenant", "alice", "seen", now, "decision", "erase", "reason", "ticket 4711").Code)
		})
	}
}

func (s *service) forget(key string) {
	s.t.Helper()
	i := s.look(key)
	require.NoError(s.t, s.guard.Forget(s.t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Decision{}))
}

// Only who may decide counts and erases, with a reason, about what was seen, from a page of the console.
func TestEraseRefusals(t *testing.T) {
	s := tenants(t)
	seen := s.as(ada).count().Seen
	form := func(more ...string) []string {
		return append([]string{"tenant", "alice", "seen", seen, "decision", "erase", "reason", "ticket 4711"}, more...)
	}
	foreign := s.as(ada)
	foreign.change = func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	for name, c := range map[string]struct {
		b      *browser
		form   []string
		status int
	}{
		"may not decide":      {s.as(viewer), form(), 403},
		"may not count":       {s.as(viewer), []string{"tenant", "alice"}, 403},
		"without a name":      {s.as(Actor{Decide: true}), form(), 403},
		"from another site":   {foreign, form(), 403},
		"no reason":           {s.as(ada), form("reason", " \n"), 422},
		"a long reason":       {s.as(ada), form("reason", strings.Repeat("x", maxReason+1)), 422},
		"no tenant":           {s.as(ada), form("tenant", ""), 422},
		"no such decision":    {s.as(ada), form("decision", "forget"), 422},
		"nothing seen":        {s.as(ada), form("seen", ""), 400},
		"another tenant seen": {s.as(ada), form("tenant", "bob"), 409},
	} {
		for _, b := range []*browser{c.b, c.b.json()} {
			got := b.erase(c.form...)
			require.Equal(t, c.status, got.Code, "%s: %s", name, got.Body)
			if c.status == http.StatusForbidden {
				require.NotContains(t, got.Body.String(), "alice", name)
				require.NotContains(t, got.Body.String(), "erased of", name)
			}
		}
	}
	require.Equal(t, 8, s.left("alice"))
	require.Zero(t, s.events.Count(event.Forgotten))
	for _, path := range []string{"/erase", "/store"} {
		require.NotContains(t, s.as(viewer).get(path).Body.String(), `name="tenant"`)
	}
}

// The records of each secret are erased, each by the guard of its route.
func TestEraseWithTheSecretOfEachGuard(t *testing.T) {
	s := serve(t, findable)
	var route string
	other := s.guard.With(idempotency.WithDerivation("", []byte("secret")), idempotency.WithRoute("POST /other"),
		idempotency.WithObserver(func(_ context.Context, e event.Event) {
			if e.Kind == event.Forgotten {
				route = e.Route
			}
		}))
	s.order(s.guard, "alice", "a", "", created)
	s.order(other, "alice", "b", "", created)
	b := s.browser(Options{Authorize: as(ada), GuardOf: func(route string) *idempotency.Guard {
		if route == "POST /other" {
			return other
		}
		return nil
	}})
	would := b.count()
	require.Equal(t, 2, would.Completed)
	require.Equal(t, http.StatusOK, b.erase("tenant", "alice", "seen", would.Seen, "decision", "erase", "reason", "x").Code)
	require.Zero(t, s.left("alice"))
	require.Equal(t, "POST /other", route)
}

// A forgettingStore does something before it forgets a record, and takes its time to find some.
type forgettingStore struct {
	*idempotency.MemoryStore
	forget func() error
	find   func(context.Context) (store.Page, error) // nil for that of the store
}

func (s *forgettingStore) Forget(ctx context.Context, key string, seen store.Seen) error {
	if err := s.forget(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.MemoryStore.Forget(ctx, key, seen)
}

func (s *forgettingStore) Find(ctx context.Context, t store.Tag, q store.Query) (store.Page, error) {
	if s.find != nil {
		return s.find(ctx)
	}
	return s.MemoryStore.Find(ctx, t, q)
}

// An erasing that has begun ends although its browser is gone, and leaves what changes while it goes on.
func TestEraseGoesOn(t *testing.T) {
	var leave context.CancelFunc
	st := &forgettingStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st, findable)
	s.fill()
	released := s.look("order-79")
	st.forget = func() error {
		leave()
		s.post("POST /orders", "order-79", created)
		return nil
	}
	b := s.as(ada)
	b.change = func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		leave = cancel
		*r = *r.WithContext(ctx)
	}
	seen := b.count("also_held", "1").Seen
	got := b.erase("tenant", "alice", "also_held", "1", "seen", seen, "decision", "erase", "reason", "x")
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, 1, s.left("alice"))
	require.Contains(t, got.Body.String(), "and 1 that have changed meanwhile.")
	require.NotEqual(t, released.Seen(), s.look("order-79").Seen())
}

// When the store goes away, the page says what was erased until then, and the rest is erased by another form.
func TestEraseThatStops(t *testing.T) {
	st := &forgettingStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st, findable)
	s.fill()
	n := 0
	st.forget = func() error {
		if n++; n > 2 {
			return errDown
		}
		return nil
	}
	b := s.as(ada)
	form := func() []string {
		return []string{"tenant", "alice", "also_held", "1", "seen", b.count("also_held", "1").Seen, "decision", "erase", "reason", "x"}
	}
	got := b.erase(form()...)
	require.Equal(t, http.StatusServiceUnavailable, got.Code)
	require.Regexp(t, "Erased . completed.*Then it stopped, and the others are left: count again, and repeat it. The store does not answer: Connection refused", got.Body.String())
	require.Equal(t, 4, s.left("alice"))
	st.forget = func() error { return nil }
	require.Equal(t, http.StatusOK, b.erase(form()...).Code)
	require.Zero(t, s.left("alice"))
}

// An erasing ends after a minute, and says what is left to do.
func TestEraseThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &forgettingStore{MemoryStore: idempotency.NewMemoryStore(), forget: func() error { time.Sleep(time.Second); return nil }}
		s := serveOn(t, st, findable)
		for n := range 61 {
			s.order(s.guard, "alice", itoa(n), "", created)
		}
		b := s.as(ada)
		got := b.erase("tenant", "alice", "seen", b.count().Seen, "decision", "erase", "reason", "x")
		require.Equal(t, http.StatusServiceUnavailable, got.Code)
		require.Regexp(t, "Erased (59|60) completed.*count again, and repeat it. Its minute was over.", got.Body.String())
		require.InDelta(t, 1.5, s.left("alice"), 0.5)
	})
}

// A tenant that cannot be counted in time is not erased, and the page says who can do it.
func TestEraseThatCannotBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &forgettingStore{MemoryStore: idempotency.NewMemoryStore(), find: func(ctx context.Context) (store.Page, error) {
			time.Sleep(time.Second)
			return store.Page{Next: "more"}, ctx.Err()
		}}
		got := serveOn(t, st, findable).as(ada).erase("tenant", "alice")
		require.Equal(t, http.StatusServiceUnavailable, got.Code)
		require.Contains(t, got.Body.String(), "more records than could be counted in time. Nothing was erased: idem erase has no such limit.")
	})
}
