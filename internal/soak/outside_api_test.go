//go:build unix

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
)

// The routes of an api that shows what is true from outside. Each books its effect with a bank
// that has a unique constraint on the derived key.
const (
	lossy    = "/lossy"    // on records that get lost, and fails open
	gateway  = "/gateway"  // passes on to lossy, behind a guard of its own
	held     = "/held"     // is held, and resolved by an operator
	refusing = "/refusing" // refuses at first, without a look at its claim
	bulky    = "/bulky"    // has answers that Redis does not take
	large    = "/large"    // has answers that a slow network does not carry in time
	parked   = "/parked"   // is held, and nobody resolves it before its TTL is over
)

// Redis numbers its databases. The records of one are thrown away again and again.
const (
	lastingDB = iota
	lossyDB
	gatewayDB
)

const (
	bulkyAnswer = 3 << 20 / 2
	largeAnswer = 600 << 10
)

// parkedTTL is over while the soak goes on.
const parkedTTL = 8 * time.Second

// serveOutside adds these routes, in the version of this process. It returns the guard to shut
// down with the others, for each database.
func (a *api) serveOutside(mux *http.ServeMux) (guards []*idempotency.Guard, err error) {
	at := func(db int, opts ...idempotency.Option) *idempotency.Guard {
		client := redis.NewClient(&redis.Options{Addr: a.redis, DB: db, ContextTimeoutEnabled: true})
		opts = append(opts, idempotency.WithLease(a.lease), idempotency.WithTTL(ttl), idempotency.WithLimits(idempotency.Limits{ResponseBody: 2 * bulkyAnswer}))
		g, newErr := idempotency.New(idempotency.NewRedisStore(client), tenant, opts...)
		err = newErr
		guards = append(guards, g)
		return g
	}
	lasting, losing, gate := at(lastingDB), at(lossyDB, idempotency.WithFailOpen(true)), at(gatewayDB)
	if err != nil {
		return nil, err
	}
	if a.version%2 == 0 {
		lasting = lasting.With(idempotency.WithTTL(2*ttl), idempotency.WithLease(a.lease*3/4))
	}
	onHold := lasting.With(idempotency.WithRecovery(idempotency.Hold))
	// A key that an operator forgets is derived from the fingerprint of whoever runs next.
	mux.Handle("POST "+held, onHold.Handler(http.HandlerFunc(a.book)))
	if a.version%2 == 0 {
		other := idempotency.WithFingerprint(idempotency.JSONFingerprint)
		lasting, onHold = lasting.With(other), onHold.With(other)
	}
	mux.Handle("POST "+lossy, losing.Handler(http.HandlerFunc(a.book)))
	mux.Handle("POST "+gateway, gate.Handler(http.HandlerFunc(a.passOn)))
	mux.Handle("POST "+bulky, onHold.Handler(http.HandlerFunc(a.book)))
	mux.Handle("POST "+large, onHold.Handler(http.HandlerFunc(a.book)))
	mux.Handle("POST "+parked, onHold.With(idempotency.WithTTL(parkedTTL)).Handler(http.HandlerFunc(a.book)))
	mux.Handle("POST "+refusing, lasting.Handler(http.HandlerFunc(a.refuse)))
	return guards, nil
}

// A booking is what a run asks the bank for.
type booking struct {
	Intent, Key string
	Unprotected bool
}

// book makes an effect and tells its number, which is the same whenever it is asked for. The
// end of the key says how: slowly, so that something may happen meanwhile, or without an answer
// in the end.
func (a *api) book(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if strings.HasSuffix(key, slowly) {
		time.Sleep(a.lease / 2)       // faults strike meanwhile, in real time
		defer time.Sleep(a.lease / 2) // likewise after the effect
	}
	if op, ok := idempotency.FromContext(r.Context()); ok && !op.Valid() {
		op.SetOutcome(idempotency.NotExecuted)
		http.Error(w, notSure, http.StatusServiceUnavailable)
		return
	}
	number, err := a.bookWith(r)
	if err != nil || r.URL.Path == held && strings.HasSuffix(key, inVain) || r.URL.Path == parked {
		http.Error(w, "the line broke", http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(bookedAnswer(r.URL.Path, number))
}

// Ends of keys.
const (
	slowly = "-slowly"
	inVain = "-in-vain"
)

func bookedAnswer(route, number string) []byte {
	answer := []byte("booked " + number)
	more := 0
	switch route {
	case bulky:
		more = bulkyAnswer
	case large:
		more = largeAnswer
	}
	return append(answer, bytes.Repeat([]byte("!"), more)...)
}

// refuse refuses as the first attempt, late, and insists on it. The second charges and fails.
func (a *api) refuse(w http.ResponseWriter, r *http.Request) {
	op, _ := idempotency.FromContext(r.Context())
	if op.Attempt() == 1 {
		time.Sleep(a.lease / 2) // faults strike meanwhile, in real time
		op.SetOutcome(idempotency.Final)
		http.Error(w, "refused", http.StatusUnprocessableEntity)
		return
	}
	number, err := a.bookWith(r)
	if err != nil || op.Attempt() == 2 {
		http.Error(w, "charged, and then the line broke", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(bookedAnswer(r.URL.Path, number))
}

func (a *api) bookWith(r *http.Request) (number string, err error) {
	_, protected := idempotency.FromContext(r.Context())
	b, err := json.Marshal(booking{
		r.URL.Path + " " + r.Header.Get("Idempotency-Key"), idempotency.DeriveKey(r.Context(), "charge"), !protected,
	})
	if err != nil {
		return "", err
	}
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodPost, a.ledger+"/book", bytes.NewReader(b))
	if err != nil {
		return "", err
	}
	got, err := a.exchange(out)
	return string(got.body), err
}

// passOn is a gateway to this very process, over the network.
func (a *api) passOn(w http.ResponseWriter, r *http.Request) {
	out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, a.url+lossy, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out.Header = r.Header.Clone()
	got, err := a.exchange(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	maps.Copy(w.Header(), got.header)
	w.WriteHeader(got.status)
	_, _ = w.Write(got.body)
}

// A passed is the answer of another process, read to its end.
type passed struct {
	status int
	header http.Header
	body   []byte
}

func (a *api) exchange(r *http.Request) (passed, error) {
	resp, err := a.client.Do(r)
	if err != nil {
		return passed{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return passed{}, fmt.Errorf("%s: %w", r.URL, err)
	}
	return passed{resp.StatusCode, resp.Header, body}, nil
}
