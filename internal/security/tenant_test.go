package security

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
	"example.com/idempotency/webhook"
)

// Tenants share a guard with all its abilities. For acme, the handler brings the key of
// each name into the state of that name. Every other tenant gets a plain answer.
type tenants struct {
	*guardtest.Server
	guard   *idempotency.Guard
	entered chan struct{} // the run of acme that is in flight has begun
	leave   chan struct{} // and ends
	end     func()
	ids     map[string]string
}

var tenantKeys = []string{"completed", "in-flight", "held", "released", "not-kept"}

func newTenants(t *testing.T, st idempotency.Store) *tenants {
	t.Helper()
	s := &tenants{entered: make(chan struct{}), leave: make(chan struct{}), ids: map[string]string{}}
	s.guard = guardtest.NewGuard(t, st, idempotency.WithWait(5*time.Second), idempotency.WithLease(time.Hour),
		idempotency.WithRecovery(idempotency.Hold), idempotency.WithLimits(idempotency.Limits{ResponseBody: 100}))
	s.end = sync.OnceFunc(func() { close(s.leave) })
	t.Cleanup(s.end)
	mux := http.NewServeMux()
	mux.Handle("POST /charges", s.guard.Handler(http.HandlerFunc(s.charge)))
	mux.Handle("POST /events", s.guard.With(idempotency.WithKeyFunc(webhook.JSONKey("id"))).Handler(http.HandlerFunc(s.charge)))
	mux.Handle("/keys", s.guard.LookupHandler())
	s.Server = guardtest.ServeRecorder(t, mux)
	return s
}

func (s *tenants) charge(w http.ResponseWriter, r *http.Request) {
	op, _ := idempotency.FromContext(r.Context())
	whose, err := idempotency.Step(r.Context(), "step", func(context.Context) (string, error) { return op.Key().Scope, nil })
	if err != nil {
		panic(err)
	}
	if other, ok := s.ids[op.ID()]; ok && other != whose {
		panic("two tenants have operations of the same ID")
	}
	s.ids[op.ID()] = whose
	w.Header().Set("Location", "/of/"+whose)
	if whose == "acme" {
		switch op.Key().Value {
		case "in-flight":
			close(s.entered)
			<-s.leave
		case "held":
			w.WriteHeader(http.StatusBadGateway)
		case "released":
			op.SetOutcome(idempotency.NotExecuted) // otherwise the step would outvote the status
			w.WriteHeader(http.StatusTooManyRequests)
		case "not-kept":
			_, _ = fmt.Fprint(w, strings.Repeat("large ", 100))
		}
	}
	_, _ = fmt.Fprintf(w, "step of %s, attempt %d", whose, op.Attempt())
}

// fill leaves a record of acme in each state. The run in flight ends with the reply.
func (s *tenants) fill(t *testing.T) (inFlight <-chan guardtest.Reply) {
	t.Helper()
	done := make(chan guardtest.Reply, 1)
	for _, key := range tenantKeys {
		c := guardtest.Call{Key: key, Tenant: "acme"}
		if key == "in-flight" {
			go func() { done <- s.Attempt(t, c) }()
			<-s.entered
			continue
		}
		s.Do(t, c)
		s.Do(t, guardtest.Call{Path: "/events", Tenant: "acme", Body: fmt.Sprintf(`{"id":"event-%s","by":"acme"}`, key)})
		_, _, err := idempotency.Do(t.Context(), s.guard, idempotency.Key{Scope: "acme", Value: "job-" + key}, func(context.Context) (string, error) {
			return "acme", nil
		})
		require.NoError(t, err)
	}
	return done
}

// states returns what a tenant can look up about its keys.
func (s *tenants) states(t *testing.T, scope string) (states []string) {
	t.Helper()
	for _, key := range tenantKeys {
		info, err := s.guard.Lookup(t.Context(), idempotency.Key{Scope: scope, Value: key})
		states = append(states, fmt.Sprintf("%s: %s attempt %d status %d steps %v, %v", key, info.State, info.Attempt, info.Status, info.Steps, err))
	}
	return states
}

// seen is what an operator sees of a key who looks at it.
func (s *tenants) seen(t *testing.T, k idempotency.Key) store.Seen {
	t.Helper()
	info, _ := s.guard.Lookup(t.Context(), k)
	return info.Seen()
}

var seconds = regexp.MustCompile(`_seconds":\d+`)

// visit does everything that a tenant can do with the keys, and returns everything that it
// is told.
func (s *tenants) visit(t *testing.T, tenant string) (told []string) {
	t.Helper()
	tell := func(v ...any) { told = append(told, seconds.ReplaceAllString(fmt.Sprintln(v...), "")) }
	ask := func(c guardtest.Call) {
		c.Tenant = tenant
		got := s.Do(t, c)
		tell(c.Path, c.Key, c.Body, got.Status, got.Header, got.Body)
	}
	tell(s.states(t, tenant))
	for _, key := range tenantKeys {
		k := idempotency.Key{Scope: tenant, Value: key}
		look := guardtest.Call{Method: http.MethodGet, Path: "/keys", Key: key, NoBody: true}
		ask(look)
		tell(s.guard.Resolve(t.Context(), k, s.seen(t, k), idempotency.Resolution{Outcome: idempotency.Final}))
		tell(s.guard.Forget(t.Context(), k, s.seen(t, k), idempotency.Decision{}))
		ask(guardtest.Call{Key: key})
		ask(guardtest.Call{Key: key})
		ask(guardtest.Call{Key: key, Body: "other"})
		ask(look)
		tell(s.guard.Resolve(t.Context(), k, s.seen(t, k), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
		for _, by := range []string{"first", "first", "second"} {
			ask(guardtest.Call{Path: "/events", Body: fmt.Sprintf(`{"id":"event-%s","by":%q}`, key, by)})
		}
		for _, payload := range []string{"a", "a", "b"} {
			value, result, err := idempotency.Do(t.Context(), s.guard, idempotency.Key{Scope: tenant, Value: "job-" + key},
				func(context.Context) (string, error) { return tenant, nil }, idempotency.WithPayload([]byte(payload)))
			tell(value, result, err)
		}
		tell(s.guard.Forget(t.Context(), k, s.seen(t, k), idempotency.Decision{}))
		ask(guardtest.Call{Key: key})
	}
	tell(s.states(t, tenant))
	return told
}

// A tenant learns nothing about the others. Replays, waits, conflicts, mismatches,
// look-ups, jobs, steps and operators' calls tell it the same whether another tenant uses
// all of its keys or nobody does. It also leaves the records of the others as they are.
func TestTenantCannotTellWhetherAnotherIsThere(t *testing.T) {
	for name, st := range guardtest.SharedStores {
		t.Run(name, func(t *testing.T) {
			alone := newTenants(t, st(t)).visit(t, "globex")
			shared := newTenants(t, st(t))
			inFlight := shared.fill(t)
			before := shared.states(t, "acme")
			require.Equal(t, alone, shared.visit(t, "globex"))
			require.Equal(t, before, shared.states(t, "acme"))
			for i, state := range []store.State{
				store.Completed, store.Claimed, store.Held, store.Released, store.Completed,
			} {
				require.Contains(t, before[i], tenantKeys[i]+": "+state.String(), "not the state that the test is about")
			}
			shared.end()
			require.Equal(t, "step of acme, attempt 1", (<-inFlight).Body)
		})
	}
}

// Scopes and keys that mean something to a store, a parser or a terminal.
var hostileNames = []string{
	"a", "b", "ab", "a:", ":a", ":", "a\x00", "\x00a", "\x00", "\x01", "\x01a", "\x01a\x01", "{x}", "{x}1", "{", "}", "*", "?", "[a-z]*",
	"a\nb", "\r\nDEL x\r\n", "$3\r\nabc", "' or 1=1 --", "idem:", "idem:settled", "\xff", "\xc3\x28", "\u202e", "\x1b[2J", "%00", "../..",
	store.Shared, strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("x", 255),
}

// Each pair of scope and key has its own record, whatever characters it contains. The name
// in the store has one fixed form, which shows neither, and no record is outside of the
// prefix.
func TestHostileNamesAreRecordsOfTheirOwn(t *testing.T) {
	server := redistest.Start(t)
	guard := guardtest.NewGuard(t, guardtest.RedisStore(t, guardtest.PatientRedisClient(t, server.Addr)))
	pairs := 0
	for _, scope := range hostileNames {
		for _, key := range hostileNames {
			k := idempotency.Key{Scope: scope, Value: key}
			want := fmt.Sprintf("%q %q", scope, key)
			for i := range 2 {
				got, result, err := idempotency.Do(t.Context(), guard, k, func(context.Context) (string, error) { return want, nil })
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.Equal(t, i == 1, result.Replayed, "%q", k)
			}
			pairs++
		}
	}
	names := server.Do(t, "KEYS", "*").([]any)
	require.Len(t, names, pairs)
	form := regexp.MustCompile(`^idem:[A-Za-z0-9_-]{43}$`)
	for _, name := range names {
		require.Regexp(t, form, name)
	}
}

// Keys with the same hash tag would all land in one slot of a Cluster. Their records are
// spread over all servers.
func TestHashTagsDoNotGatherRecords(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, false)
	s := guardtest.RedisStore(t, guardtest.PatientRedisClient(t, cluster.Addrs()...))
	const keys = 600
	for i := range keys {
		k := intent.Key{Scope: "{x}", Value: fmt.Sprintf("{x}%d", i)}
		guardtest.Claim(t, s, k.Name(), guardtest.RedisClaim())
	}
	var spread []int64
	for _, master := range cluster.Masters {
		spread = append(spread, master.Do(t, "DBSIZE").(int64))
	}
	require.Greater(t, slices.Min(spread), int64(keys/6), "records on each of three servers: %v", spread)
}
