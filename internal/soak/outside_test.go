//go:build unix

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// outsideLease is short: what happens here lasts longer than a lease.
const outsideLease = 2 * time.Second

// An outside is a second world of a soak, with a Redis of its own. Two processes of different
// versions share it. Its records get lost, it is away for longer than a lease, processes stand
// still for longer than that, and an operator decides about what is held. The bank forgets
// nothing.
type outside struct {
	t         *testing.T
	redis     *redistest.Server
	processes []*process
	client    *http.Client
	desk      *idempotency.Guard
	lossy     *redis.Client

	mu       sync.Mutex
	bookings map[string]string            // numbers, by key
	keys     map[string]map[string]string // of the keys that an intent has booked with
	made     map[string]int               // calls of the bank, by intent
	decided  map[string]string            // what the operator has recorded, by intent
	figures  map[string]int
	failures []string
}

func newOutside(t *testing.T) *outside {
	o := &outside{
		t:      t,
		redis:  redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--proto-max-bulk-len", "1mb"),
		client: &http.Client{Timeout: 5 * time.Second}, bookings: map[string]string{}, keys: map[string]map[string]string{},
		made: map[string]int{}, decided: map[string]string{}, figures: map[string]int{},
	}
	bank := httptest.NewServer(http.HandlerFunc(o.serveBooking))
	t.Cleanup(bank.Close)
	for version := 1; version <= 2; version++ {
		proxy := faultproxy.New(t, o.redis.Addr)
		o.processes = append(o.processes, launch(t, fmt.Sprint("outside-", version), "-redis", proxy.Addr(),
			"-ledger", bank.URL, "-lease", outsideLease.String(), "-grace", grace.String(), "-version", fmt.Sprint(version)))
	}
	records := redis.NewClient(&redis.Options{Addr: o.redis.Addr, DB: lastingDB})
	o.lossy = redis.NewClient(&redis.Options{Addr: o.redis.Addr, DB: lossyDB})
	t.Cleanup(func() { _, _ = records.Close(), o.lossy.Close() })
	desk, err := idempotency.New(idempotency.NewRedisStore(records), tenant, idempotency.WithRecovery(idempotency.Hold))
	require.NoError(t, err)
	o.desk = desk
	return o
}

// serveBooking is the bank: a key that it knows gets the number that it has.
func (o *outside) serveBooking(w http.ResponseWriter, r *http.Request) {
	var b booking
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	number, again := o.bookings[b.Key]
	if !again {
		number = fmt.Sprint("number-", len(o.bookings))
		o.bookings[b.Key] = number
	}
	if o.keys[b.Intent] == nil {
		o.keys[b.Intent] = map[string]string{}
	}
	o.keys[b.Intent][b.Key] = number
	o.made[b.Intent]++
	if b.Unprotected {
		o.figures["effects of unprotected runs"]++
	}
	if again {
		o.figures["effects recognised"]++
	} else {
		o.figures["effects"]++
	}
	second := len(o.keys[b.Intent]) > 1
	o.mu.Unlock()
	if second {
		o.fail("a second effect of %s", b.Intent)
	}
	_, _ = w.Write([]byte(number))
}

func (o *outside) fail(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failures) < 50 {
		o.failures = append(o.failures, fmt.Sprintf(format, args...))
	}
}

func (o *outside) count(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.figures[what]++
}

// run keeps the processes busy until stop is closed, and then looks at what is left.
func (o *outside) run(seed uint64, stop <-chan struct{}) {
	var clients sync.WaitGroup
	asked := make([][]string, 20)
	for i := range asked {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
			for n := 0; !sleep(stop, 0); n++ {
				route := []string{lossy, gateway, held, refusing, bulky}[n%5]
				key := fmt.Sprintf("outside-%d-%d%s", i, n, []string{"", slowly, inVain}[rng.IntN(3)])
				o.live(rng, route, key, stop)
				if route == held || route == bulky {
					asked[i] = append(asked[i], route+" "+key)
				}
			}
		})
	}
	o.torment(rand.New(rand.NewPCG(seed, 999)), stop)
	clients.Wait()
	time.Sleep(2 * outsideLease) // what is settled in the background
	for _, all := range asked {
		for _, intent := range all {
			o.audit(intent)
		}
	}
	for _, p := range o.processes {
		p.terminate()
	}
}

// requireKept fails if a promise was broken, or if the world was one in which nothing happens.
func (o *outside) requireKept(length time.Duration) {
	require.Empty(o.t, o.failures, strings.Join(o.failures, "\n"))
	for _, p := range o.processes {
		require.NoError(o.t, p.exit(o.t), p.name)
		p.requireSound(o.t)
	}
	if length >= 2*time.Minute {
		for _, what := range outsideFigures {
			require.Positive(o.t, o.figures[what], what)
		}
	}
}

var outsideFigures = []string{
	"requests to " + lossy, "requests to " + gateway, "requests to " + held, "requests to " + refusing, "requests to " + bulky,
	"effects", "effects recognised", "effects of unprotected runs", "times all records lost",
	"processes stopped for more than a lease", "outages of more than a lease",
	"times told that the outcome is unknown", "decisions", "answers not kept", "refusals that gave way",
}

// torment makes what lasts longer than a lease, and throws records away.
func (o *outside) torment(rng *rand.Rand, stop <-chan struct{}) {
	incidents := []func(){
		func() {
			p := o.processes[rng.IntN(2)]
			p.stop()
			sleep(nil, outsideLease*3/2)
			p.resume()
			o.count("processes stopped for more than a lease")
		},
		func() {
			o.redis.Kill()
			sleep(nil, outsideLease*5/4)
			o.redis.Restart(o.t)
			o.count("outages of more than a lease")
		},
	}
	for n := 0; ; n++ {
		for range 4 {
			if sleep(stop, between(rng, 100, 500)) {
				return
			}
			if o.lossy.FlushDB(context.Background()).Err() == nil {
				o.count("times all records lost")
			}
		}
		incidents[n%len(incidents)]()
	}
}

// live sends the request of an intent, twice at a time and again and again, to processes of
// both versions.
func (o *outside) live(rng *rand.Rand, route, key string, stop <-chan struct{}) {
	pauses := make([]time.Duration, 2+rng.IntN(3))
	for i := range pauses {
		pauses[i] = between(rng, 0, 800)
	}
	var duplicates sync.WaitGroup
	for d := range 2 {
		duplicates.Go(func() {
			for i, pause := range pauses {
				for n := 0; !o.send(o.processes[(d+i+n)%2], route, key); n++ {
					if sleep(stop, 50*time.Millisecond) {
						return
					}
				}
				if sleep(stop, pause) {
					return
				}
			}
		})
	}
	duplicates.Wait()
}

// send sends a request once, checks the answer and reports whether it is the last word.
func (o *outside) send(p *process, route, key string) bool {
	intent := route + " " + key
	in := newIntent(route, "tenant", key, order{})
	before := o.decisionOn(intent)
	got := in.send(context.Background(), o.client, p, in.body)
	o.count("requests to " + route)
	switch {
	case got.err != nil:
		return false // the process stands still
	case got.code != "" && got.replayed():
		o.fail("%s: a refusal is replayed: %v", intent, got)
	case before != "" && got.code == "" && got.status < 500 && string(got.body) != before:
		o.fail("%s: %v contradicts what was decided: %s", intent, got, before)
	}
	switch {
	case got.code == problem.OutcomeUnknown && (route == held || route == bulky):
		o.count("times told that the outcome is unknown")
		if route == held {
			o.decide(intent, key)
		}
		return true
	case got.code == problem.ResponseNotKept && route == bulky:
		o.count("answers not kept")
		return true
	case got.code == problem.InFlight, got.code == problem.StoreUnavailable:
		return false
	case got.code != "":
		o.fail("%s: unexpected refusal: %v", intent, got)
		return true
	case got.status == http.StatusCreated:
		if route == refusing {
			o.count("refusals that gave way")
		}
		return o.isBooked(intent, route, got)
	case got.status == http.StatusUnprocessableEntity && route == refusing:
		o.mu.Lock()
		booked := len(o.keys[intent]) > 0
		o.mu.Unlock()
		if booked && got.replayed() {
			o.fail("%s: a refusal is recorded over an effect", intent)
		}
		return true
	case got.status == http.StatusOK && before != "":
		return true
	}
	return false
}

// isBooked checks that an answer has the number of its effect.
func (o *outside) isBooked(intent, route string, got reply) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	booked := strings.Replace(intent, gateway, lossy, 1)
	for _, number := range o.keys[booked] {
		if bytes.Equal(got.body, bookedAnswer(route, number)) {
			return true
		}
	}
	if len(o.failures) < 50 {
		o.failures = append(o.failures, fmt.Sprintf("%s: not its answer: %v, of %v", intent, got, o.keys[booked]))
	}
	return true
}

// decide is the operator: it looks, and records that the run has happened, if the key is still
// what it has seen.
func (o *outside) decide(intent, key string) {
	k := idempotency.Key{Scope: "tenant", Value: key}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	info, err := o.desk.Lookup(ctx, k)
	if err != nil || info.State != idempotency.StateHeld {
		return
	}
	answer := "decided about " + intent
	err = o.desk.Resolve(ctx, k, info.Seen(), idempotency.Resolution{Outcome: idempotency.Final, Body: []byte(answer)})
	if err == nil {
		o.mu.Lock()
		o.decided[intent] = answer
		o.figures["decisions"]++
		o.mu.Unlock()
	}
}

func (o *outside) decisionOn(intent string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.decided[intent]
}

// audit looks at a key of a route with Hold when all is calm. It never runs twice. It is held
// only if its run may have had its effect: no process has died here.
func (o *outside) audit(intent string) {
	route, key, _ := strings.Cut(intent, " ")
	o.mu.Lock()
	made, decided := o.made[intent], o.decided[intent]
	o.mu.Unlock()
	if made > 1 {
		o.fail("%s has run %d times", intent, made)
	}
	in := newIntent(route, "tenant", key, order{})
	got := in.send(context.Background(), o.client, o.processes[0], in.body)
	if got.code == problem.OutcomeUnknown && made == 0 && decided == "" {
		o.fail("%s is held, and nothing has run", intent)
	}
}

// summary tells what the second world was like.
func (o *outside) summary() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	b.WriteString("from outside:")
	for _, what := range outsideFigures {
		fmt.Fprintf(&b, " %d %s,", o.figures[what], what)
	}
	fmt.Fprintf(&b, " %d broken promises", len(o.failures))
	return b.String()
}
