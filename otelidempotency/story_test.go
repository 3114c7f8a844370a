package otelidempotency_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/store"
)

// A bank books and wires, and remembers by reference how often. It does not answer before it is
// told to, as a bank in trouble.
type bank struct {
	*httptest.Server
	mu            sync.Mutex
	booked, wired map[string]int
	asked         []string // references that somebody wants wired
	answers       bool
	end           chan struct{}
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{booked: make(map[string]int), wired: make(map[string]int), end: make(chan struct{})}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	t.Cleanup(func() { close(b.end) })
	return b
}

func (b *bank) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	ref := r.URL.Query().Get("ref")
	b.mu.Lock()
	answers := b.answers
	if r.URL.Path == "/book" {
		b.booked[ref]++
		answers = true
	} else {
		b.asked = append(b.asked, ref)
		if answers {
			b.wired[ref]++
		}
	}
	b.mu.Unlock()
	if !answers {
		<-b.end
	}
}

func (b *bank) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// An office is what people see at night: the events, and the log.
type office struct {
	mu     sync.Mutex
	events []event.Event
	log    bytes.Buffer
}

func (o *office) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(p)
}

func (o *office) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.String()
}

func (o *office) observe(_ context.Context, e event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

func (o *office) of(kind event.Kind) (events []event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// Five payouts are in flight when their process is killed. No client comes back. Another process
// sees them, somebody settles each from what is seen alone, and then the clients come back.
func TestFivePayoutsInFlightWhenTheirProcessIsKilled(t *testing.T) {
	t.Parallel()
	const payouts = 5
	server, atBank := redistest.Start(t), newBank(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	st := idempotency.NewRedisStore(client)
	t.Cleanup(func() { _ = st.Close() })

	// The office: another process, with a gauge, a log, and eyes.
	seen := &office{}
	operator := newBench(t, st)
	opts, err := payoutOptions()
	require.NoError(t, err)
	guard := operator.guard.With(append(opts, idempotency.WithObserver(seen.observe),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(seen, nil))))...)
	operator.watch(t, otelidempotency.WithStore(st))
	const every = 100 * time.Millisecond
	watching, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- guard.Reconcile(watching, every) }()
	t.Cleanup(func() { stop(); <-ended })

	first := startService(t, server.Addr, atBank.URL)
	var clients sync.WaitGroup
	for n := range payouts {
		clients.Go(func() {
			if resp, err := first.send(n); err == nil {
				_ = resp.Body.Close()
				t.Errorf("payout %d was answered with %s", n, resp.Status)
			}
		})
	}
	asked := func() (refs []string) {
		atBank.set(func() { refs = slices.Clone(atBank.asked) })
		return refs
	}
	require.Eventually(t, func() bool { return len(asked()) == payouts }, time.Minute, 5*time.Millisecond)
	require.Empty(t, seen.of(event.Held), "they are in flight")
	first.kill()
	killed := time.Now()
	clients.Wait()
	refs := asked()
	atBank.set(func() { // two had gone through before the bank fell silent
		atBank.wired[refs[0]], atBank.wired[refs[3]] = 1, 1
	})

	// Within a lease and a sweep there is an event for each.
	require.Eventually(t, func() bool { return len(seen.of(event.Held)) >= payouts }, time.Minute, 5*time.Millisecond)
	t.Logf("held after %v, with a lease of %v and a tick of %v", time.Since(killed), storyLease, every)
	held := make(map[string]event.Event)
	for _, e := range seen.of(event.Held) {
		held[e.Scope] = e
	}
	require.Len(t, held, payouts)
	for n := range payouts {
		e := held[storyKey(n).Scope]
		require.Equal(t, storyRoute, e.Route)
		require.Equal(t, 1, e.Attempt)
		require.Equal(t, storyTrace(n), e.Trace)
		require.Equal(t, []string{"book"}, e.Steps)
		require.Equal(t, []string{"wire"}, e.InDoubt)
		require.GreaterOrEqual(t, e.Age, storyLease)
		require.Less(t, e.Age, storyLease+5*time.Second, "a lease, a tick, and a busy machine")
	}
	require.Equal(t, payouts, strings.Count(seen.said(), "steps=book in_doubt=wire"))
	require.EqualValues(t, payouts, operator.values(t, "idempotency.records")["idempotency.state=held"])
	require.EqualValues(t, payouts, operator.values(t, "idempotency.incidents")["idempotency.incident=held"])

	// The list says what each is, and each is settled from the list, by name.
	page, err := st.List(t.Context(), store.Query{Holding: true, States: []store.State{store.Held}})
	require.NoError(t, err)
	require.Len(t, page.Entries, payouts)
	final := make(map[string]bool) // by the clients' keys
	for _, entry := range page.Entries {
		name := idempotency.Key{Record: entry.Key}
		info, err := guard.Lookup(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, storyRoute, info.Route)
		require.Equal(t, 1, info.Attempt)
		require.Equal(t, []string{"book"}, info.Steps)
		require.Equal(t, []string{"wire"}, info.InDoubt)
		require.Equal(t, held[info.Key.Scope].Trace, info.Trace)
		require.GreaterOrEqual(t, info.Age, storyLease)

		var wired bool
		atBank.set(func() { wired = atBank.wired[info.DeriveKey("wire")] > 0 })
		decision := idempotency.Resolution{
			Outcome: idempotency.Resume, NotDone: info.InDoubt,
			Decision: idempotency.Decision{Actor: "ada", Reason: "not wired: " + info.Key.Value},
		}
		if wired {
			decision = idempotency.Resolution{
				Outcome: idempotency.Final, Status: http.StatusCreated, Body: []byte("paid at night"),
				Decision: idempotency.Decision{Actor: "ada", Reason: "wired: " + info.Key.Value},
			}
		}
		require.NoError(t, guard.Resolve(t.Context(), name, info.Seen(), decision))
		final[info.Key.Value] = wired
		require.Contains(t, seen.said(), `reason="`+decision.Reason+`"`)
	}
	require.Len(t, seen.of(event.Resolved), payouts)

	// The clients come back, to a new process. Each finds its answer, or has its payout run once.
	atBank.set(func() { atBank.answers = true })
	second := startService(t, server.Addr, atBank.URL)
	for n := range payouts {
		want := "paid"
		if final[storyKey(n).Value] {
			want = "paid at night"
		}
		for retry := range 2 {
			resp, err := second.send(n)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			require.Equal(t, want, string(body))
			require.Equal(t, want == "paid at night" || retry > 0, resp.Header.Get("Idempotent-Replayed") == "true")
		}
	}
	require.Len(t, final, payouts)
	atBank.set(func() {
		require.Len(t, atBank.wired, payouts)
		for ref, times := range atBank.wired {
			require.Equal(t, 1, times, "each was wired once")
			require.Equal(t, 1, atBank.booked[ref], "and booked once")
		}
	})
}
