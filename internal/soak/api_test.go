//go:build unix

package soak

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// The routes of an api, and what each does about a run of unknown outcome.
const (
	rerun = "/rerun" // runs again
	wait  = "/wait"  // runs again, and lets duplicates wait
	hold  = "/hold"  // is held
	once  = "/once"  // makes its effect in a step that is made at most once
)

// exclusive reports whether a route promises that its effect never happens twice.
func exclusive(route string) bool { return route == hold || route == once }

const (
	// ttl is longer than any key is used for, and short enough that Redis stays small.
	ttl = 2 * time.Minute
	// waiting is how long a duplicate waits, if nobody tells it to go.
	waiting = 15 * time.Second
)

// serve runs an api until ctx ends, then finishes what has begun.
func (c config) serve(ctx context.Context, listening func(url string)) error {
	client := redis.NewClient(&redis.Options{Addr: c.redis, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	records := idempotency.NewRedisStore(client)
	defer func() { _ = records.Close() }()
	a := &api{config: c, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
	var st idempotency.Store = records
	if c.crash != "" {
		st = crashingStore{records, a, new(atomic.Int32)}
	}
	guard, err := idempotency.New(st, tenant, idempotency.WithRequired(true),
		idempotency.WithLease(c.lease), idempotency.WithTTL(ttl))
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	a.url = "http://" + l.Addr().String()
	routes, guards := a.routes(guard), []*idempotency.Guard{guard}
	if c.version > 0 {
		more, err := a.serveOutside(routes)
		if err != nil {
			return err
		}
		guards = append(guards, more...)
	}
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	listening(a.url)

	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.grace)
	defer cancel()
	ended := make(chan error, len(guards))
	for _, g := range guards {
		go func() { ended <- g.Shutdown(ctx) }()
	}
	err = server.Shutdown(ctx)
	for range guards {
		err = errors.Join(err, <-ended)
	}
	return err
}

// An api makes effects under a guard.
type api struct {
	config
	client *http.Client
	url    string
}

func (a *api) routes(guard *idempotency.Guard) *http.ServeMux {
	mux := http.NewServeMux()
	for route, g := range map[string]*idempotency.Guard{
		rerun: guard,
		wait:  guard.With(idempotency.WithWait(waiting)),
		hold:  guard.With(idempotency.WithRecovery(idempotency.Hold)),
		once:  guard,
	} {
		mux.Handle("POST "+route, stamped(g.Handler(http.HandlerFunc(a.serveOrder))))
	}
	mux.HandleFunc("GET /stats", a.serveStats)
	return mux
}

func tenant(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }

type arrivalKey struct{}

// stamped notes when a request arrived, which is before its key is claimed.
func stamped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), arrivalKey{}, time.Now())))
	})
}

// An order is what a client asks for.
type order struct {
	Delay    time.Duration // before the effect
	Linger   time.Duration // after it
	Size     int           // of the answer
	Flush    bool          // in the middle of it
	TurnAway bool          // the first attempt, before the effect
	Padding  string
}

// serveOrder makes one effect, as late as possible: right before, it asks whether the
// claim is still its own.
func (a *api) serveOrder(w http.ResponseWriter, r *http.Request) {
	op, _ := idempotency.FromContext(r.Context())
	effect := effect{
		Intent:  op.Key().Scope + "/" + op.Key().Value,
		Process: a.name,
		Attempt: op.Attempt(),
		Arrived: r.Context().Value(arrivalKey{}).(time.Time),
		Began:   time.Now(),
	}
	body, err := io.ReadAll(r.Body)
	effect.Body = digest(body)
	var o order
	if err := errors.Join(err, json.Unmarshal(body, &o)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if o.TurnAway && op.Attempt() == 1 {
		http.Error(w, turnedAway, http.StatusTooManyRequests)
		return
	}
	time.Sleep(o.Delay) // so that faults strike at all moments of a run
	if !op.Valid() {
		op.SetOutcome(idempotency.NotExecuted)
		http.Error(w, notSure, http.StatusServiceUnavailable)
		return
	}
	act := func(ctx context.Context) (string, error) {
		effect.ID = rand.Text()
		err := a.tell(ctx, "/effects", effect)
		a.dieAt(afterEffect)
		return effect.ID, err
	}
	if r.URL.Path == once {
		effect.ID, err = idempotency.Step(r.Context(), "effect", act, idempotency.AtMostOnce())
	} else {
		effect.ID, err = act(r.Context())
	}
	if err != nil && !errors.Is(err, idempotency.ErrNotRecorded) {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	time.Sleep(o.Linger) // likewise after the effect
	if !op.Valid() {
		_ = a.tell(r.Context(), "/overtaken", effect)
	}
	answer(w, o, effect)
}

// Refusals of the handler itself.
const (
	turnedAway = "turned away"
	notSure    = "the claim is not sure any more"
)

// answer names the effect that has been made.
func answer(w http.ResponseWriter, o order, e effect) {
	h := w.Header()
	h.Set("Content-Type", "text/plain")
	h.Set("Location", "/effects/"+e.ID)
	h.Set("X-Effect", e.ID)
	h.Set("X-Attempt", strconv.Itoa(e.Attempt))
	w.WriteHeader(http.StatusCreated)
	body := o.answer(e.Intent, e.ID)
	half := len(body) / 2
	_, _ = w.Write(body[:half])
	if o.Flush {
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = w.Write(body[half:])
}

// answer is the body of the answer that tells of an effect.
func (o order) answer(intent, effect string) []byte {
	body := fmt.Appendf(nil, "%s %s\n", intent, effect)
	for len(body) < o.Size {
		body = append(body, effect...)
	}
	return body
}

// tell tells the ledger, which has written it down when tell returns. The effect happens
// even if the run is told meanwhile to stop.
func (a *api) tell(ctx context.Context, path string, e effect) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, a.ledger+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := a.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("ledger: %s", resp.Status)
	}
	return nil
}

// Stats are what a process knows of itself, when its garbage is collected.
type stats struct {
	// Goroutines are those that no claim has that is being given back: such a claim is waited for
	// in case it arrives late, for 15 minutes under Hold, which is longer than the test looks.
	Goroutines int
	Heap       uint64
	// Settling counts the runs that wait in the background to be recorded.
	Settling int
}

func (a *api) serveStats(w http.ResponseWriter, _ *http.Request) {
	a.client.CloseIdleConnections()
	stacks := make([]byte, 16<<20)
	text := string(stacks[:runtime.Stack(stacks, true)])
	begun := func(by string) int {
		return strings.Count(text, "created by example.com/idempotency/internal/engine."+by)
	}
	s := stats{Goroutines: runtime.NumGoroutine() - begun("(*Lease).releaseGhost"), Settling: begun("(*settlement).goOn")}
	// The second collection empties the pools.
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	s.Heap = mem.HeapAlloc
	_ = json.NewEncoder(w).Encode(s)
}

// The moments at which an api kills itself.
const (
	beforeClaim = "before the claim"
	afterClaim  = "after the claim, before the effect"
	afterMark   = "after the mark, before the effect"
	afterEffect = "after the effect, before its record"
	afterRecord = "after the record, before the answer"
)

// dieAt ends the process as kill -9 does: nothing is deferred, flushed or finished.
func (a *api) dieAt(moment string) {
	if moment == a.crash {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// A crashingStore dies around its calls.
type crashingStore struct {
	*idempotency.RedisStore
	api   *api
	saves *atomic.Int32
}

func (s crashingStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	s.api.dieAt(beforeClaim)
	rec, err := s.RedisStore.Claim(ctx, key, c)
	s.api.dieAt(afterClaim)
	return rec, err
}

func (s crashingStore) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	err := s.RedisStore.SaveStep(ctx, key, o, name, value)
	if s.saves.Add(1) == 1 {
		s.api.dieAt(afterMark)
	}
	return err
}

func (s crashingStore) Complete(
	ctx context.Context, key string, o store.Owner, c store.Completion,
) error {
	err := s.RedisStore.Complete(ctx, key, o, c)
	s.api.dieAt(afterRecord)
	return err
}
