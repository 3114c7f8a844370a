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

// An outside is a second world of a soak, with a Redis of its own. Processes of different versions
// share it, and take each other's place. Its records get lost, it is away for longer than a lease,
// processes stand still or lose their connection for longer than that, or have a slow one, and an
// operator decides about what is held. The bank forgets nothing.
type outside struct {
	t      *testing.T
	redis  *redistest.Server
	bank   string // its URL
	places []*outsidePlace
	client *http.Client
	desk   *idempotency.Guard // of the operators

	slowFor time.Duration // how long the network is slow at a time
	lossy   *redis.Client

	complaints chan string // the operators' work

	mu        sync.Mutex
	processes []*process                   // all that there ever were
	bookings  map[string]string            // numbers, by key
	keys      map[string]map[string]string // of the keys that an intent has booked with
	made      map[string]int               // calls of the bank, by intent
	decided   map[string]string            // what the operator has recorded, by intent
	reopened  map[string]int               // how often the operator may have let an intent run again
	parked    map[string]time.Time         // since when an intent is held that nobody resolves
	figures   map[string]int
	failures  []string
}

// An outsidePlace is where processes run one after the other, each of another version than the last.
type outsidePlace struct {
	place
	version int
}

// telling is the length from which on a soak has everything happen.
const telling = 5 * time.Minute

func newOutside(t *testing.T, length time.Duration) *outside {
	o := &outside{
		slowFor: 4 * outsideLease,
		t:       t,
		redis:   redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--proto-max-bulk-len", "1mb"),
		client:  &http.Client{Timeout: 5 * time.Second}, complaints: make(chan string, 20),
		bookings: map[string]string{}, keys: map[string]map[string]string{}, made: map[string]int{},
		decided: map[string]string{}, reopened: map[string]int{}, parked: map[string]time.Time{}, figures: map[string]int{},
	}
	if length >= telling {
		o.slowFor = 10 * outsideLease
	}
	bank := httptest.NewServer(http.HandlerFunc(o.serveBooking))
	t.Cleanup(bank.Close)
	o.bank = bank.URL
	for n := range 2 {
		p := &outsidePlace{place: place{n: n + 1, proxy: faultproxy.New(t, o.redis.Addr)}, version: n}
		o.start(p)
		o.places = append(o.places, p)
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
	asked := make([][]askedIntent, 20)
	for i := range asked {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
			routes := []string{lossy, gateway, held, refusing, bulky, large, parked}
			for n := rng.IntN(len(routes)); !sleep(stop, 0); n++ {
				route := routes[n%len(routes)]
				key := fmt.Sprintf("outside-%d-%d%s", i, n, []string{"", slowly, inVain}[rng.IntN(3)])
				begun := time.Now()
				o.live(rng, route, key, stop)
				if onHold(route) {
					asked[i] = append(asked[i], askedIntent{route + " " + key, begun})
				}
			}
		})
	}
	for i := range uint64(2) {
		clients.Go(func() { o.operate(rand.New(rand.NewPCG(seed, 900+i)), stop) })
	}
	o.torment(rand.New(rand.NewPCG(seed, 999)), stop)
	clients.Wait()
	time.Sleep(2 * outsideLease) // what is settled in the background
	for _, all := range asked {
		for _, a := range all {
			o.audit(a)
		}
	}
	for _, p := range o.places {
		p.process().terminate()
	}
}

// requireKept fails if a promise was broken, or if the world was one in which nothing happens.
func (o *outside) requireKept(length time.Duration) {
	require.Empty(o.t, o.failures, strings.Join(o.failures, "\n"))
	for _, p := range o.processes {
		require.NoError(o.t, p.exit(o.t), "%s; its log:\n%s", p.name, p.log())
		p.requireSound(o.t)
	}
	if length >= telling {
		for _, what := range outsideFigures {
			require.Positive(o.t, o.figures[what], what)
		}
	}
}

var outsideFigures = []string{
	"requests to " + lossy, "requests to " + gateway, "requests to " + held, "requests to " + refusing, "requests to " + bulky,
	"requests to " + large, "requests to " + parked,
	"effects", "effects recognised", "effects of unprotected runs",
	"times all records lost", "single records lost",
	"deployments of another version", "processes stopped for more than a lease", "connections severed for more than a lease",
	"outages of more than a lease", "times the network was slow",
	"answers that Redis does not take", "answers that a slow network does not carry",
	"refusals that gave way", "times told that the outcome is unknown",
	"keys resolved as final", "keys resolved as not executed", "keys forgotten by an operator",
	"decisions that came too late, or to a Redis that is away", "times found held after the TTL",
}

// onHold reports whether a route never runs twice by itself.
func onHold(route string) bool {
	return route == held || route == bulky || route == large || route == parked
}

// keyOf is the key of an intent.
func keyOf(intent string) string {
	_, key, _ := strings.Cut(intent, " ")
	return key
}

// live sends the request of an intent, twice at a time and again and again, to processes of
// both versions. What goes through a gateway goes past it at the same time.
func (o *outside) live(rng *rand.Rand, route, key string, stop <-chan struct{}) {
	pauses := make([]time.Duration, 2+rng.IntN(3))
	for i := range pauses {
		pauses[i] = between(rng, 0, 800)
	}
	var duplicates sync.WaitGroup
	for d := range 2 {
		duplicates.Go(func() {
			route := route
			if route == gateway && d == 1 {
				route = lossy
			}
			for i, pause := range pauses {
				for n := 0; !o.send(o.places[(d+i+n)%2].process(), route, key); n++ {
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
	case got.code == problem.OutcomeUnknown && onHold(route):
		o.count("times told that the outcome is unknown")
		switch route {
		case held:
			o.complain(intent)
		case parked:
			o.park(intent)
		}
		return true
	case got.code == problem.ResponseNotKept && route == bulky:
		o.count("answers that Redis does not take")
		return true
	case got.code == problem.ResponseNotKept && route == large:
		o.count("answers that a slow network does not carry")
		return true
	case got.code == problem.InFlight, got.code == problem.StoreUnavailable, got.code == problem.ShuttingDown, got.code == problem.NoAnswer:
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
	case got.status == http.StatusOK && string(got.body) == decidedAbout(intent):
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

// park notes that a key is held that nobody resolves, and sees that it is held for longer than its TTL.
func (o *outside) park(intent string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	since, ok := o.parked[intent]
	if o.made[intent] == 0 {
		return // the claim of a request that has gone may be held for a while, until it is given back
	}
	if !ok {
		o.parked[intent] = time.Now()
	} else if time.Since(since) > parkedTTL {
		o.figures["times found held after the TTL"]++
	}
}

func (o *outside) decisionOn(intent string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.decided[intent]
}

// An askedIntent is one that clients have asked for, and since when.
type askedIntent struct {
	name  string
	begun time.Time
}

// audit looks at a key of a route with Hold when all is calm. It never runs twice by itself. It is
// held only if its run may have had its effect, because no process has died here, or if a process was
// shut down in an outage and has said that it left a claim behind. And it is held still if
// nobody has resolved it, also when its TTL is over. A key with an answer is not asked for that late,
// because it would run.
func (o *outside) audit(a askedIntent) {
	intent := a.name
	route, key, _ := strings.Cut(intent, " ")
	o.mu.Lock()
	made, decided, reopened := o.made[intent], o.decided[intent], o.reopened[intent]
	_, isHeld := o.parked[intent]
	o.mu.Unlock()
	if made > 1+reopened {
		o.fail("%s has run %d times", intent, made)
	}
	if !isHeld && time.Since(a.begun) > ttl/2 {
		return
	}
	in := newIntent(route, "tenant", key, order{})
	got := in.send(context.Background(), o.client, o.places[0].process(), in.body)
	switch {
	case got.code == problem.OutcomeUnknown && made == 0 && decided == "":
		if log := o.logOf(key); !strings.Contains(log, logLeft) {
			o.fail("%s is held, and nothing has run; of it was logged:\n%s", intent, log)
		}
	case got.code == problem.OutcomeUnknown && isHeld:
		o.park(intent)
	case isHeld:
		o.fail("%s is not held any more: %v", intent, got)
	}
}

// logOf returns what the processes have logged of a key.
func (o *outside) logOf(key string) string {
	info, err := o.desk.Lookup(context.Background(), idempotency.Key{Scope: "tenant", Value: key})
	if err != nil {
		return err.Error()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var log strings.Builder
	for _, p := range o.processes {
		log.WriteString(p.logOf(info.Record))
	}
	return log.String()
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
