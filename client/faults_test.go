package client_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A ledger is a server's handler: it counts the effects of each order, and answers with
// something that no second effect would answer.
type ledger struct {
	mu      sync.Mutex
	effects map[int]int
	answers map[int]string
}

type order struct {
	Number int  `json:"number"`
	Slow   bool `json:"slow"`
}

// slow is longer than an attempt may take, so that the next one finds the request in
// flight.
const slow = 1500 * time.Millisecond

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if json.NewDecoder(r.Body).Decode(&o) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	l.effects[o.Number]++
	answer := fmt.Sprintf("order %d, effect %d, %s", o.Number, l.effects[o.Number], client.NewKey())
	l.answers[o.Number] = answer
	l.mu.Unlock()
	if o.Slow {
		time.Sleep(slow) // the client gives its attempt up in real time
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

// A dice makes the same decisions for the same seed, if it is asked in the same order.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(t *testing.T) *dice {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("SEED=%d", seed)
		}
	})
	return &dice{rng: rand.New(rand.NewPCG(seed, 0))}
}

func (d *dice) percent(n float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64()*100 < n
}

// unreliable is a gateway that fails before or after what is behind it, which has done
// its work in the second case.
func unreliable(d *dice, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case d.percent(2):
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case d.percent(2):
			panic(http.ErrAbortHandler)
		case d.percent(2):
			next.ServeHTTP(deaf{make(http.Header)}, r)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case d.percent(2):
			next.ServeHTTP(deaf{make(http.Header)}, r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// A deaf ResponseWriter loses the answer.
type deaf struct{ header http.Header }

func (d deaf) Header() http.Header         { return d.header }
func (d deaf) WriteHeader(int)             {}
func (d deaf) Write(p []byte) (int, error) { return len(p), nil }

// A world is a server and what its clients know of it.
type world struct {
	server func(t *testing.T, l *ledger) http.Handler
	opts   []client.Option
	// ignoresKeys says that each request has an effect.
	ignoresKeys bool
}

var worlds = map[string]world{
	"guard": {
		server: func(t *testing.T, l *ledger) http.Handler {
			return newGuard(t, idempotency.NewMemoryStore()).Handler(l)
		},
		opts: []client.Option{client.WithServer(profile.Guard(), "127.0.0.1")},
	},
	"guard with an error writer": {
		server: func(t *testing.T, l *ledger) http.Handler {
			writer := func(w http.ResponseWriter, _ *http.Request, p problem.Document) { http.Error(w, "sorry", p.Status) }
			return newGuard(t, idempotency.NewMemoryStore(), idempotency.WithErrorWriter(writer)).Handler(l)
		},
		opts: []client.Option{client.WithServer(profile.Guard(), "127.0.0.1")},
	},
	"ignores keys": {
		server:      func(_ *testing.T, l *ledger) http.Handler { return l },
		ignoresKeys: true,
	},
	"stripe-shaped": {
		server: func(_ *testing.T, l *ledger) http.Handler {
			return &stripe{next: l, keys: make(map[string]*httptest.ResponseRecorder)}
		},
		opts: []client.Option{client.WithServer(profile.Stripe(), "127.0.0.1")},
	},
	"guard with Redis": {
		server: func(t *testing.T, l *ledger) http.Handler {
			rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = rdb.Close() })
			return newGuard(t, idempotency.NewRedisStore(rdb)).Handler(l)
		},
		opts: []client.Option{client.WithServer(profile.Guard(), "127.0.0.1")},
	},
}

// A stripe is a server that does what Stripe publishes: it records the first answer of each
// key and marks it when it repeats it, and answers 409 while the first request is executed.
type stripe struct {
	next http.Handler

	mu   sync.Mutex
	keys map[string]*httptest.ResponseRecorder // nil while it is executed
}

func (s *stripe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get(keyField)
	w.Header().Set(keyField, key)
	s.mu.Lock()
	recorded, known := s.keys[key]
	if !known {
		s.keys[key] = nil
	}
	s.mu.Unlock()
	switch {
	case !known:
		recorded = httptest.NewRecorder()
		s.next.ServeHTTP(recorded, r)
		s.mu.Lock()
		s.keys[key] = recorded
		s.mu.Unlock()
	case recorded == nil:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Stripe-Should-Retry", "true")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}`)
		return
	default:
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(recorded.Code)
	_, _ = w.Write(recorded.Body.Bytes())
}

// exhaustive says that the long versions of tests run. CI sets it.
var exhaustive = os.Getenv("CLIENT_EXHAUSTIVE") != ""

func TestOneEffectForEachCall(t *testing.T) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			calls := 1_000
			if exhaustive {
				calls = 5_000
			}
			callUnderFaults(t, w, calls)
		})
	}
}

// callUnderFaults makes calls through a network and a gateway that lose requests and
// answers. It checks that each call has one effect, and that each caller gets its one answer
// or an error that says what is known, and with whose key the answer can be had later. A
// server that ignores keys gets no request twice that it may have executed.
func callUnderFaults(t *testing.T, w world, calls int) {
	const workers = 32
	d := newDice(t)
	l := &ledger{effects: make(map[int]int), answers: make(map[int]string)}
	s := serve(t, unreliable(d, w.server(t, l)))
	proxy := faultproxy.New(t, s.Listener.Addr().String())
	for fault, percent := range map[faultproxy.Fault]float64{
		faultproxy.LoseRequest: 1, faultproxy.LoseReply: 2, faultproxy.CutReply: 1,
	} {
		proxy.Fail(fault, -1, func([]byte) bool { return d.percent(percent) })
	}
	proxy.Fail(faultproxy.HangReply, workers/2, func([]byte) bool { return d.percent(0.5) })

	base := newBase(t)
	e := new(events)
	options := append([]client.Option{
		client.WithObserver(e.observe), client.WithAttemptTimeout(slow / 2),
		client.WithBackoff(time.Millisecond, 20*time.Millisecond), client.WithRetryBudget(100, 0),
	}, w.opts...)
	transport := newStranger(t, base, options...)
	impatient := newStranger(t, base, append(options, client.WithAttempts(1))...)
	bodies := make([]string, calls)
	unknown := make([]*client.Error, calls)
	got := make([]string, calls)
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				bodies[i] = fmt.Sprintf(`{"number":%d,"slow":%t}`, i, i%250 == 125)
				through := transport
				if i%5 == 1 {
					through = impatient
				}
				answer, err := send(through, post(t.Context(), "http://"+proxy.Addr()+"/orders", bodies[i]))
				switch {
				case err == nil && answer.status == http.StatusCreated:
					got[i] = answer.body
				case errors.As(err, &unknown[i]) && errors.Is(err, client.ErrOutcomeUnknown):
				case err == nil:
					t.Errorf("order %d: status %d", i, answer.status)
				case errors.As(err, &unknown[i]):
					l.mu.Lock()
					effects := l.effects[i]
					l.mu.Unlock()
					assert.LessOrEqual(t, effects, 0, "order %d was executed: %v", i, err)
				default:
					t.Errorf("order %d: %v", i, err)
				}
			}
		})
	}
	for i := range calls {
		next <- i
	}
	close(next)
	wg.Wait()
	require.False(t, t.Failed())

	left, repeated := 0, 0
	proxy.Heal()
	for i, u := range unknown {
		if u == nil {
			continue
		}
		left++
		if w.ignoresKeys {
			continue // only somebody who looks can tell
		}
		// With the key of the error, the answer is to be had when the network works again.
		answer, err := send(transport, post(u.Context(t.Context()), s.URL+"/orders", bodies[i]))
		for err != nil && errors.Is(err, client.ErrOutcomeUnknown) {
			answer, err = send(transport, post(u.Context(t.Context()), s.URL+"/orders", bodies[i]))
		}
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, answer.status)
		got[i] = answer.body
	}
	l.mu.Lock() // on a busy machine, a request that its client has given up may still come
	defer l.mu.Unlock()
	for i := range calls {
		if l.effects[i] > 1 {
			repeated++
		}
		if w.ignoresKeys && unknown[i] != nil {
			continue
		}
		require.Equal(t, 1, l.effects[i], "effects of order %d", i)
		require.Equal(t, l.answers[i], got[i], "the answer of order %d", i)
	}
	require.Zero(t, repeated)
	attempts, replays, waits := 0, 0, 0
	for _, a := range e.of(client.EventAttempt) {
		attempts++
		if a.Replayed {
			replays++
		}
		if a.Status == http.StatusConflict {
			waits++
		}
	}
	t.Logf("%d calls, %d requests, %d network faults, %d replays, %d found in flight, %d ended as unknown, %d repeated",
		calls, attempts, proxy.Fired(), replays, waits, left, repeated)
	require.Greater(t, proxy.Fired(), calls/50, "the network was too good")
	require.Positive(t, left, "no call ended as unknown")
	if !w.ignoresKeys {
		require.Greater(t, replays, calls/50, "no answer was lost")
		require.Positive(t, waits, "no request was found in flight")
	}
}

// This file plays random fates: a server of each vendor, a proxy in front of it that answers
// in its place, and a network that loses requests and answers.

// A fateful server is a RoundTripper with a vendor's server behind a proxy and a network.
type fateful struct {
	d           *dice
	v           vendor
	ignoresKeys bool
	valid       bool // the request is one that the server executes

	effects  int
	executed bool
	flying   int // how many more requests find the first one in flight
}

// proxyStatuses are those that a proxy answers with by itself.
var proxyStatuses = []int{302, 303, 307, 400, 401, 403, 404, 405, 407, 408, 409, 413, 422, 423, 425, 429, 431, 499, 500, 501, 502, 503, 504, 505, 506, 510, 511}

func (f *fateful) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case f.d.percent(10):
		return nil, errReset // before it arrives
	case f.d.percent(25):
		f.d.mu.Lock()
		status := proxyStatuses[f.d.rng.IntN(len(proxyStatuses))]
		f.d.mu.Unlock()
		return answer{status: status, header: map[string]string{"Content-Type": "text/html", "Location": "/login"}, body: "<html>"}.response(r), nil
	}
	a := f.serve()
	switch {
	case f.d.percent(15):
		return nil, errReset // the answer is lost
	case f.d.percent(10):
		return answer{status: 502, body: "<html>"}.response(r), nil
	}
	return a.response(r), nil
}

// serve is the vendor's server.
func (f *fateful) serve() answer {
	switch {
	case !f.valid:
		return f.v.invalid
	case f.ignoresKeys:
		f.effects++
		return answer{status: 201}
	case f.flying > 0 && f.v.inFlight.status > 0:
		f.flying--
		return f.v.inFlight
	case f.executed:
		return f.v.replayed
	case f.d.percent(15):
		return f.broken(500, 501, 505) // before the effect
	}
	f.effects++
	f.executed = true
	if f.d.percent(30) {
		f.d.mu.Lock()
		f.flying = f.d.rng.IntN(3)
		f.d.mu.Unlock()
		return f.broken(408, 500, 504) // of a gateway that has not waited
	}
	fresh := f.v.replayed
	if fresh.status >= 300 {
		return jsonAnswer(201, created)
	}
	fresh.header = maps.Clone(fresh.header)
	delete(fresh.header, "Idempotent-Replayed")
	return fresh
}

// broken is an error of the server, with any of some statuses.
func (f *fateful) broken(statuses ...int) answer {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return withStatus(statuses[f.d.rng.IntN(len(statuses))], f.v)
}

// again says the key of an error once more, in any of the ways that there are. Another process has
// another transport, and knows no more than that the key may have been sent.
func (f *fateful) again(e *client.Error, here, there *client.Transport) (*client.Transport, func(*http.Request) *http.Request) {
	f.d.mu.Lock()
	way := f.d.rng.IntN(4)
	f.d.mu.Unlock()
	if way == 3 {
		here = there
	}
	return here, func(r *http.Request) *http.Request {
		ctx := e.Context(r.Context())
		switch way {
		case 1:
			ctx = client.WithKey(ctx, e.Key)
		case 2:
			r.Header.Set(cmp.Or(f.v.profile.KeyHeader, keyField), e.Key)
		case 3:
			ctx = client.Intent{Key: e.Key, Resumed: true}.Context(r.Context())
		}
		return r.WithContext(ctx)
	}
}

// Whatever happens, there is one effect at most, and the caller is told nothing that is not
// so. With the key of an error, the answer can be had later, and then nothing is unknown.
func TestTruthUnderRandomFates(t *testing.T) {
	runs := 300
	if exhaustive {
		runs = 10_000
	}
	d := newDice(t)
	for _, v := range vendors {
		for name, opts := range map[string][]client.Option{"declared": {client.WithServer(v.profile, "*")}, "stranger": nil} {
			told := make(map[string]int)
			for range runs {
				f := &fateful{d: d, v: v, valid: d.percent(80), ignoresKeys: opts == nil && d.percent(50)}
				if opts == nil && v.profile.KeyMember != "" {
					f.ignoresKeys = true // the body is nothing that a stranger looks into
				}
				synctest.Test(t, func(t *testing.T) {
					transport := newStranger(t, f, opts...)
					say := func(r *http.Request) *http.Request { return r.WithContext(client.WithKey(t.Context(), "k")) }
					for range 30 {
						got, err := send(transport, say(post(t.Context(), place, `{"amount":1,"idempotency_key":"k"}`)))
						requireAgreement(t, got, err, f.effects)
						var e *client.Error
						switch {
						case err == nil:
							told["answered"]++
							return
						case !errors.Is(err, client.ErrOutcomeUnknown):
							told["refused or not executed"]++
							return
						case f.ignoresKeys:
							told["unknown"]++
							return // only somebody who looks can tell
						}
						require.ErrorAs(t, err, &e)
						transport, say = f.again(e, transport, newStranger(t, f, opts...))
					}
					told["unknown"]++
				})
			}
			t.Logf("%s, %s: %v", v.profile.Name, name, told)
			require.Positive(t, told["answered"])
		}
	}
}
