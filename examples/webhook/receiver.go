package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/webhook"
)

// An endpoint receives the deliveries of one provider. Providers put the name of a delivery in
// different places, and two may choose the same name.
type endpoint struct {
	path string
	key  idempotency.KeyFunc
	// name puts the name of an event where the provider puts it.
	name func(h http.Header, e *event)
}

var endpoints = []endpoint{
	{
		"/hooks/code", webhook.HeaderKey("X-GitHub-Delivery"),
		func(h http.Header, e *event) { h.Set("X-Github-Delivery", e.ID); e.ID = "" },
	},
	{
		"/hooks/payments", webhook.JSONKey("id"),
		func(http.Header, *event) {},
	},
	{
		"/hooks/events", webhook.CloudEventKey,
		func(h http.Header, e *event) {
			h.Set("Ce-Id", e.ID)
			h.Set("Ce-Source", "/bank")
			e.ID = ""
		},
	},
}

// An event is the body of a delivery. Version rises with each event of a provider.
type event struct {
	ID      string `json:"id,omitempty"`
	Amount  int    `json:"amount"`
	Version int    `json:"version"`
}

// secret signs the deliveries of all providers of this example.
const secret = "whsec_example"

// A receiver applies events.
type receiver struct {
	mux http.ServeMux

	mu     sync.Mutex
	states map[string]*account
}

// An account is the state that the events of one provider change.
type account struct {
	applied int // events
	balance int // the sum of all amounts
	version int // of the latest event, which may not be the last one to arrive
}

func newReceiver() (*receiver, error) {
	// Each endpoint is a scope of its own, so keys of two providers never meet. The TTL
	// outlasts the days for which providers redeliver.
	guard, err := idempotency.New(idempotency.NewMemoryStore(),
		func(r *http.Request) (string, error) { return "webhook " + r.URL.Path, nil },
		idempotency.WithTTL(7*24*time.Hour), idempotency.WithRequired(true))
	if err != nil {
		return nil, err
	}
	rec := &receiver{states: make(map[string]*account)}
	for _, e := range endpoints {
		rec.states[e.path] = &account{}
		// verify is outside the guard: a forged delivery must not claim a key.
		rec.mux.Handle("POST "+e.path, verify(guard.With(idempotency.WithKeyFunc(e.key)).Handler(http.HandlerFunc(rec.apply))))
	}
	return rec, nil
}

func (rec *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) { rec.mux.ServeHTTP(w, r) }

func (rec *receiver) state(path string) account {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return *rec.states[path]
}

// apply runs once for each event. That is enough for amounts, which add up in any order. A
// key makes an event count once, but says nothing about order. So where order matters, the
// event itself must say which of two is the later one.
func (rec *receiver) apply(w http.ResponseWriter, r *http.Request) {
	var e event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(w, "no event", http.StatusBadRequest)
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	state := rec.states[r.URL.Path]
	state.applied++
	state.balance += e.Amount
	state.version = max(state.version, e.Version)
	w.WriteHeader(http.StatusNoContent)
}

// verify lets signed deliveries in. Providers sign each attempt anew. The signature is in a
// header field, which is not part of the fingerprint, so a redelivery is not a mismatch.
func verify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "unreadable", http.StatusBadRequest)
			return
		}
		if !hmac.Equal([]byte(r.Header.Get("Webhook-Signature")), []byte(sign(r.Header.Get("Webhook-Timestamp"), body))) {
			http.Error(w, "not signed", http.StatusUnauthorized)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func sign(timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(mac, timestamp+".")
	_, _ = mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
