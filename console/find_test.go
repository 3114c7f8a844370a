package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file finds records by all that they can be found by.

// byOrder finds records by the field X-Order, as the number of an order.
var byOrder = idempotency.WithReference(func(r *http.Request, _ []byte) string { return r.Header.Get("X-Order") })

var findable = idempotency.WithFindableScope(true)

// order sends a request with a key, of a tenant, about an order, to a guard.
func (s *service) order(g *idempotency.Guard, tenant, key, number string, h http.HandlerFunc) {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Tenant", tenant)
	r.Header.Set("X-Order", number)
	g.Handler(h).ServeHTTP(httptest.NewRecorder(), r)
}

// find sends a form with pairs of fields to the screen that finds.
func (b *browser) find(pairs ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	form := url.Values{}
	for n := 0; n < len(pairs); n += 2 {
		form.Set(pairs[n], pairs[n+1])
	}
	return b.do(http.MethodPost, "/find", form)
}

// found returns what a form finds, page by page, and the last sentence about it.
func (b *browser) found(pairs ...string) (names []string, says string) {
	b.t.Helper()
	for cursor := ""; ; {
		got := b.json().find(append(pairs, "cursor", cursor)...)
		require.Equal(b.t, http.StatusOK, got.Code, got.Body)
		var page inspect.Found
		require.NoError(b.t, json.Unmarshal(got.Body.Bytes(), &page))
		for _, r := range page.Records {
			names = append(names, r.Record)
		}
		if cursor = page.Next; cursor == "" {
			return names, page.Says
		}
	}
}

// A record is led to by its name and by its key, in whichever form they come.
func TestFind(t *testing.T) {
	s := filled(t)
	b, name := s.as(viewer), s.look("payout-1").Record
	for _, got := range []*httptest.ResponseRecorder{
		b.get("/find?record=" + name), b.get("/find?record=+" + name + "+"), b.find("scope", "alice", "key", "payout-1"), b.find("q", " "+name+"\n"), b.json().find("q", name), b.find("q", "alice payout-1"),
	} {
		require.Equal(t, http.StatusSeeOther, got.Code)
		require.Equal(t, "./records/"+name, got.Header().Get("Location"))
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", `"one of all"`)
	shared := guardtest.NewGuardOf(t, s.store, idempotency.SharedScope)
	shared.Handler(http.HandlerFunc(created)).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, http.StatusSeeOther, b.find("q", "one of all").Code)
	for _, c := range []struct {
		status int
		got    *httptest.ResponseRecorder
	}{
		{404, b.find("scope", "bob", "key", "payout-1")},
		{404, b.find("scope", "", "key", "payout-1")},
		{404, b.get("/find?record=payout-1")},
		{422, b.find("scope", "alice", "key", "")},
		{422, b.find("q", " ")},
		{200, b.find("q", strings.Repeat("k", longestKey+1))},
		{422, b.find("reference", "")},
		{422, b.find("tenant", "")},
		{422, b.find("trace", "x")},
		{422, b.get("/find?trace=" + strings.Repeat("0", 32))},
		{422, b.find()},
		{400, b.find("tenant", "alice", "cursor", "1.")},
		{400, b.find("tenant", "alice", "cursor", "-1.")},
		{400, b.find("tenant", "alice", "cursor", "0.x")},
	} {
		require.Equal(t, c.status, c.got.Code, c.got.Body)
	}
}

// Records are found by a reference and by their tenant, by whoever may look, and a page of them says how many there are.
func TestFindByReferenceAndTenant(t *testing.T) {
	s := serve(t, byOrder, findable, idempotency.WithRoute("POST /orders"))
	s.order(s.guard, "alice", "a", "77", created)
	s.order(s.guard, "alice", "b", "78", broken)
	s.order(s.guard, "bob", "c", "77", created)
	b := s.as(viewer)
	name := func(tenant, key string) string {
		i, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: tenant, Value: key})
		require.NoError(t, err)
		return i.Record
	}
	a, other, c := name("alice", "a"), name("alice", "b"), name("bob", "c")
	for _, search := range []struct {
		pairs []string
		want  []string
		says  string
	}{
		{[]string{"reference", "77"}, []string{a, c}, "2 records have this reference."},
		{[]string{"reference", "78"}, []string{other}, "1 record has this reference."},
		{[]string{"tenant", "alice"}, []string{a, other}, "2 records are of this tenant."},
		{[]string{"q", "77"}, []string{a, c}, "2 records have this reference."},
		{[]string{"q", "bob"}, []string{c}, "1 record is of this tenant."},
		{[]string{"reference", "alice"}, nil, "Nothing is found: no record has this reference. No such request may have come, or its record has ended."},
		{[]string{"tenant", "77"}, nil, "WithFindableScope"},
		{[]string{"q", "nobody"}, nil, "no record has this name, this reference, this tenant or this key"},
		{[]string{"q", strings.Repeat("A", 43)}, nil, "no record has this name, this reference, this tenant or this key"},
	} {
		names, says := b.found(search.pairs...)
		require.ElementsMatch(t, search.want, names, "%v", search.pairs)
		require.Contains(t, says, search.says)
		got := b.find(search.pairs...)
		if len(search.want) == 1 {
			require.Equal(t, "./records/"+search.want[0], got.Header().Get("Location"))
			continue
		}
		require.Equal(t, http.StatusOK, got.Code)
		require.Contains(t, got.Body.String(), search.says)
		for _, name := range search.want {
			require.Contains(t, got.Body.String(), `href="./records/`+name+`"`)
		}
		require.NotContains(t, got.Body.String(), "erase", "who may only look is offered nothing else")
	}
	requireGolden(t, "found", b.json().find("tenant", "bob").Body.String())
	requireGolden(t, "found-nothing", b.json().find("reference", "79").Body.String())
	require.Contains(t, s.as(ada).find("tenant", "alice").Body.String(), "Count what erasing this tenant would remove")
}

// A long list has pages, each of which leads to the next.
func TestPagesOfATenant(t *testing.T) {
	s := serve(t, findable)
	for i := range pageSize + 5 {
		s.order(s.guard, "alice", "key-"+itoa(i), "", created)
	}
	b := s.as(viewer)
	names, _ := b.found("tenant", "alice")
	require.Len(t, names, pageSize+5)
	first := b.find("tenant", "alice").Body.String()
	require.Contains(t, first, "50 records are of this tenant, and there may be more.")
	require.NotContains(t, first, "First page")
	_, cursor, _ := strings.Cut(first, `name="cursor" value="`)
	cursor, _, _ = strings.Cut(cursor, `"`)
	second := b.find("tenant", "alice", "cursor", cursor).Body.String()
	require.Contains(t, second, "5 further records are of this tenant.")
	require.Contains(t, second, "First page")
	require.NotContains(t, second, "Next page")
}

// Records are found whichever secret their guard has: guards made from that of the console are known, others are named.
func TestFindWithTheSecretOfEachGuard(t *testing.T) {
	s := serve(t, byOrder, findable)
	secret := func(text string) idempotency.Option { return idempotency.WithDerivation("", []byte(text)) }
	apart := guardtest.NewGuardOf(t, s.store, guardtest.TenantScope, byOrder, findable, secret("two"))
	s.order(s.guard, "alice", "a", "77", created)
	s.order(s.guard.With(secret("one")), "alice", "b", "77", created)
	s.order(s.guard.With(secret("one")), "alice", "c", "77", created)
	s.order(s.guard.With(secret("")), "alice", "d", "77", created)
	s.order(apart, "alice", "e", "77", created)
	for _, pairs := range [][]string{{"reference", "77"}, {"tenant", "alice"}} {
		names, says := s.as(viewer).found(pairs...)
		require.Len(t, names, 4, says)
		names, _ = s.browser(Options{Authorize: as(viewer), Guards: []*idempotency.Guard{apart}}).found(pairs...)
		require.Len(t, names, 5)
	}
}

// A run is found by its trace among what is held, also if another attempt came later, and the page says what it has looked at.
func TestFindByTrace(t *testing.T) {
	var now event.TraceContext
	s := serve(t, adapter.WithTraceContext(func(context.Context) event.TraceContext { return now }))
	run := func(key string, trace byte, h http.HandlerFunc) {
		now = event.TraceContext{TraceID: [16]byte{trace}, SpanID: [8]byte{1}}
		s.post("POST /payouts", key, h, hold)
	}
	run("payout-1", 1, broken)
	i := s.look("payout-1")
	require.NoError(t, s.guard.Resolve(t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
	run("payout-1", 2, broken)
	run("payout-2", 2, broken)
	run("payout-3", 3, created)
	b := s.as(viewer)
	id := func(trace byte) string { return "0" + itoa(int(trace)) + strings.Repeat("0", 30) }
	for _, c := range []struct {
		text  string
		want  int
		looks string
	}{
		{id(1), 1, "Looked at 2 records that are held"},
		{id(2), 2, "2 records have "},
		{"00-" + id(2) + "-0100000000000000-01", 2, "2 records"},
		{id(3), 0, "Looked at 2 records that are held, or in flight on routes that hold, and at no others"},
	} {
		for _, field := range []string{"trace", "q"} {
			names, says := b.found(field, c.text)
			require.Len(t, names, c.want)
			require.Contains(t, says, c.looks)
		}
	}
	require.Equal(t, "./records/"+i.Record, b.get("/find?trace="+strings.ToUpper(id(1))).Header().Get("Location"))
	requireGolden(t, "found-trace", b.json().get("/find?trace="+id(3)).Body.String())
}

// A record is found by its operation ID among what is held, on a route that keeps its keys, by a guard that can read them.
func TestFindByOperation(t *testing.T) {
	sealer, err := idempotency.NewSealer(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	s := serve(t, idempotency.WithSealer(sealer), idempotency.WithDerivation("", []byte("secret")))
	var id string
	run := func(key string, h http.HandlerFunc, opts ...idempotency.Option) string {
		s.post("POST /payouts", key, func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			id = op.ID()
			h(w, r)
		}, append(opts, hold)...)
		return id
	}
	kept := idempotency.WithKeptKeys(true)
	held, keyless, settled := run("payout-1", broken, kept), run("payout-2", broken), run("payout-3", created, kept)
	run("payout-4", broken, kept)
	b := s.as(viewer)
	for _, field := range []string{"operation", "id", "q"} {
		names, says := b.found(field, " "+strings.ToUpper(held))
		require.Equal(t, []string{s.look("payout-1").Record}, names, field)
		require.Contains(t, says, "Looked at 3 records that are held")
		for _, other := range []string{keyless, settled} {
			names, says := b.found(field, other)
			require.Empty(t, names)
			require.Contains(t, says, "only where the route keeps keys (WithKeptKeys)")
		}
	}
	names, _ := b.found("trace", held)
	require.Empty(t, names, "it is no trace")
	require.Equal(t, "./records/"+s.look("payout-1").Record, b.get("/find?operation="+held).Header().Get("Location"))
	require.Equal(t, http.StatusUnprocessableEntity, b.find("operation", held[1:]).Code)
	requireGolden(t, "found-operation", b.json().find("operation", strings.Repeat("0", 32)).Body.String())
}

// A search by trace looks at a bounded part of the index at once, and goes on.
func TestFindByTraceInALongIndex(t *testing.T) {
	s := serveOn(t, &sparseStore{idempotency.NewMemoryStore(), mostPages})
	s.fill()
	got := s.as(viewer).get("/find?trace=" + strings.Repeat("1", 32)).Body.String()
	require.Contains(t, got, "the next one may have some. Looked at 0 records")
	require.Contains(t, got, "Next page")
	_, says := s.as(viewer).found("trace", strings.Repeat("1", 32))
	require.Contains(t, says, "Nothing else is found. Looked at 4 records")
}

// A tagless store finds records by their keys only.
type taglessStore struct{ store.Store }

func (s taglessStore) inner() *idempotency.MemoryStore { return s.Store.(*idempotency.MemoryStore) }

func (s taglessStore) Get(ctx context.Context, key string) (store.Record, error) {
	return s.inner().Get(ctx, key)
}

func (s taglessStore) GetAnswer(ctx context.Context, key string) (store.Record, error) {
	return s.inner().GetAnswer(ctx, key)
}

func (s taglessStore) Resolve(ctx context.Context, key string, seen store.Seen, as store.Settlement) error {
	return s.inner().Resolve(ctx, key, seen, as)
}

func (s taglessStore) Forget(ctx context.Context, key string, seen store.Seen) error {
	return s.inner().Forget(ctx, key, seen)
}

func (s taglessStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	return s.inner().List(ctx, q)
}

// With a store that has no index of tags, the screens offer what they can do, and say so.
func TestStoreWithoutTags(t *testing.T) {
	s := serveOn(t, taglessStore{idempotency.NewMemoryStore()})
	s.fill()
	b := s.as(ada)
	page := b.get("/find").Body.String()
	require.Contains(t, page, "This store keeps no index of references and tenants")
	require.NotContains(t, page, `name="reference"`)
	require.NotContains(t, b.get("/store").Body.String(), `action="./erase"`)
	require.NotContains(t, b.get("/erase").Body.String(), "<form class=\"card\"")
	for _, got := range []*httptest.ResponseRecorder{b.find("reference", "77"), b.find("tenant", "alice"), b.find("q", "77"), b.erase("tenant", "alice")} {
		require.Equal(t, http.StatusNotImplemented, got.Code)
		require.Contains(t, got.Body.String(), "The store finds records by their keys only.")
	}
	require.Contains(t, b.find("q", strings.Repeat("1", 32)).Body.String(), "Looked at 4 records")
}
