package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// send makes one request in an example and prints what came back.
func send(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text := strings.TrimSpace(w.Body.String())
	var document problem.Document
	if w.Header().Get("Content-Type") == "application/problem+json" && json.Unmarshal(w.Body.Bytes(), &document) == nil {
		text = string(document.Code)
	}
	if w.Header().Get("Idempotent-Replayed") == "true" {
		text += " (replayed)"
	}
	fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", text)))
}

// guardFor returns a guard for an example whose requests come from one customer.
func guardFor(opts ...idempotency.Option) *idempotency.Guard {
	customer := func(*http.Request) (string, error) { return "customer-1", nil }
	guard, err := idempotency.New(idempotency.NewMemoryStore(), customer, opts...)
	if err != nil {
		log.Fatal(err)
	}
	return guard
}

func charge(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, "charged")
}

func Example() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), func(*http.Request) (string, error) {
		return "customer-1", nil // from your authentication
	})
	if err != nil {
		log.Fatal(err)
	}
	charges := 0
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charge %d", charges)
	}))

	send(h, "key-1", `{"amount":100}`)
	send(h, "key-1", `{"amount":100}`)
	send(h, "key-1", `{"amount":999}`)
	send(h, "key-2", `{"amount":100}`)
	// Output:
	// 201 charge 1
	// 201 charge 1 (replayed)
	// 409 key-reused
	// 201 charge 2
}

// This is the wrong way. A timeout inside the guard answers for a handler that goes on: its
// 503 looks like the end of the run, and the effect comes afterwards.
func Example_incorrectTimeoutInside() {
	guard := guardFor()
	bank, charged := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-bank
		close(charged)
	})
	h := guard.Handler(http.TimeoutHandler(slow, time.Millisecond, "timed out"))
	send(h, "key-1", "{}")
	close(bank)
	<-charged
	fmt.Println("charged all the same")
	// Output:
	// 503 timed out
	// charged all the same
}

// This is the right way. A timeout outside the guard sends the client away, and the client
// finds the answer when it comes back.
func Example_timeoutOutside() {
	guard := guardFor(idempotency.WithWait(time.Second))
	bank := make(chan struct{})
	slow := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-bank // the deadline does not stop what has been sent to the bank
		charge(w, r)
	}))
	h := http.TimeoutHandler(slow, time.Second, "timed out")
	send(h, "key-1", "{}")
	close(bank)
	send(slow, "key-1", "{}")
	// Output:
	// 503 timed out
	// 201 charged (replayed)
}

func ExampleNew_mistakes() {
	_, err := idempotency.New(nil, nil, idempotency.WithTTL(-1), idempotency.WithMismatchStatus(200))
	fmt.Println(err)
	// Output:
	// idempotency: New: nil scope; use SharedScope to share one namespace
	// idempotency: New: nil store
	// idempotency: WithTTL: -1ns is not between 1ms and 87600h0m0s
	// idempotency: WithMismatchStatus: 200 is not a 4xx status that says that no retry helps
}

func ExampleGuard_With() {
	guard := guardFor(idempotency.WithRequired(true))
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(http.HandlerFunc(charge)))
	mux.Handle("POST /payouts", guard.With(
		idempotency.WithTTL(7*24*time.Hour),
		idempotency.WithRecovery(idempotency.Hold),
	).Handler(http.HandlerFunc(charge)))

	send(mux, "", "{}")
	send(mux, "key-1", "{}")
	// Output:
	// 400 key-missing
	// 201 charged
}

// An operator settles a held key after looking at what happened.
func ExampleGuard_Resolve() {
	guard := guardFor(idempotency.WithRecovery(idempotency.Hold))
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway) // did the charge happen?
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")

	ctx := context.Background()
	key := idempotency.Key{Scope: "customer-1", Value: "key-1"}
	info, err := guard.Lookup(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.State, info.Attempt)
	err = guard.Resolve(ctx, key, info.Seen(), idempotency.Resolution{
		Outcome: idempotency.Final, Status: http.StatusCreated, Body: []byte("charged"),
		Decision: idempotency.Decision{Actor: "ada", Reason: "charge ch_1 found at the provider"},
	})
	if err != nil {
		log.Fatal(err)
	}
	send(h, "key-1", "{}")
	// Output:
	// 502
	// 409 outcome-unknown
	// held 1
	// 201 charged (replayed)
}

// What was seen in a listing is given to a command that decides later. If the key is another's
// by then, the command does nothing.
func ExampleSeen() {
	guard := guardFor(idempotency.WithRecovery(idempotency.Hold))
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	send(h, "key-1", "{}")
	ctx := context.Background()
	key := idempotency.Key{Scope: "customer-1", Value: "key-1"}
	info, err := guard.Lookup(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	listed := info.Seen().String()

	// Somebody forgets the key, and its next run is held too.
	if err := guard.Forget(ctx, key, info.Seen(), idempotency.Decision{Actor: "bob"}); err != nil {
		log.Fatal(err)
	}
	send(h, "key-1", "{}")

	var seen store.Seen
	command := flag.NewFlagSet("resolve", flag.ExitOnError)
	command.TextVar(&seen, "seen", store.Seen{}, "what the listing shows of the key")
	if err := command.Parse([]string{"-seen", listed}); err != nil {
		log.Fatal(err)
	}
	err = guard.Resolve(ctx, key, seen, idempotency.Resolution{Outcome: idempotency.NotExecuted})
	fmt.Println(seen.State, seen.Attempt, errors.Is(err, idempotency.ErrChanged))
	// Output:
	// 502
	// 502
	// held 1 true
}

func ExampleGuard_Forget() {
	guard := guardFor()
	h := guard.Handler(http.HandlerFunc(charge))
	send(h, "key-1", "{}")
	ctx := context.Background()
	key := idempotency.Key{Scope: "customer-1", Value: "key-1"}
	info, err := guard.Lookup(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	// Forget removes only what was seen, and refuses when that has changed.
	fmt.Println(info.State, info.Attempt)
	by := idempotency.Decision{Actor: "ada", Reason: "test charge of customer-1"}
	if err := guard.Forget(ctx, key, info.Seen(), by); err != nil {
		log.Fatal(err)
	}
	send(h, "key-1", "{}")
	// Output:
	// 201 charged
	// completed 1
	// 201 charged
}

// A handler can see that it runs again. It can pass on an ID that is the same in all attempts.
func ExampleFromContext() {
	guard := guardFor()
	var ids []string
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, ok := idempotency.FromContext(r.Context())
		if !ok {
			http.Error(w, "called without a guard", http.StatusInternalServerError)
			return
		}
		ids = append(ids, op.ID())
		if op.Attempt() == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "attempt %d, same id: %v", op.Attempt(), ids[0] == ids[1])
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// 500
	// 200 attempt 2, same id: true
}

// A handler overrides the judgement of its status.
func ExampleOperation_SetOutcome() {
	guard := guardFor(idempotency.WithRecovery(idempotency.Hold))
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if op, ok := idempotency.FromContext(r.Context()); ok && op.Attempt() == 1 {
			op.SetOutcome(idempotency.NotExecuted) // the dial failed: nothing was sent
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		charge(w, r)
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// 503
	// 201 charged
}

func ExampleWithOutcome() {
	// In this API a conflict comes from a lock, before anything is done.
	guard := guardFor(idempotency.WithOutcome(func(status int, h http.Header) idempotency.Outcome {
		if status == http.StatusConflict {
			return idempotency.NotExecuted
		}
		return idempotency.DefaultOutcome(status, h)
	}))
	locked := true
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if locked {
			locked = false
			w.WriteHeader(http.StatusConflict)
			return
		}
		charge(w, r)
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// 409
	// 201 charged
}

// A route that validates before it does anything lets its clients correct what they have sent.
func ExampleWithRebinding() {
	guard := guardFor(idempotency.WithRebinding(true), idempotency.WithOutcome(func(status int, h http.Header) idempotency.Outcome {
		if status == http.StatusUnprocessableEntity {
			return idempotency.NotExecuted
		}
		return idempotency.DefaultOutcome(status, h)
	}))
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 5 {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		charge(w, r)
	}))
	send(h, "key-1", "{}")
	send(h, "key-1", `{"amount":100}`)
	// Output:
	// 422
	// 201 charged
}

// An API writes refusals in the format of its other errors.
func ExampleWithErrorWriter() {
	guard := guardFor(idempotency.WithErrorWriter(func(w http.ResponseWriter, _ *http.Request, p problem.Document) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"error": map[string]any{"type": "idempotency_error", "message": p.Detail, "differs": p.Differs},
		})
	}))
	h := guard.Handler(http.HandlerFunc(charge))
	send(h, "key-1", "{}")
	send(h, "key-1", `{"other":"payload"}`)
	// Output:
	// 201 charged
	// 409 {"error":{"differs":["body"],"message":"This idempotency key was used before with a different request. Use a new key for a new request.","type":"idempotency_error"}}
}

func ExampleWithAuthorizeReplay() {
	suspended := false
	guard := guardFor(idempotency.WithAuthorizeReplay(func(_ *http.Request, info idempotency.RecordInfo) error {
		if suspended {
			return fmt.Errorf("%s is suspended", info.Key.Scope)
		}
		return nil
	}))
	h := guard.Handler(http.HandlerFunc(charge))
	send(h, "key-1", "{}")
	suspended = true
	send(h, "key-1", "{}")
	// Output:
	// 201 charged
	// 403 replay-denied
}

// The delivery ID of a webhook is its key.
func ExampleWithKeyFunc() {
	guard := guardFor(idempotency.WithKeyFunc(func(_ *http.Request, body []byte) (string, error) {
		var ev struct{ ID string }
		err := json.Unmarshal(body, &ev)
		return ev.ID, err
	}))
	h := guard.Handler(http.HandlerFunc(charge))
	send(h, "", `{"id":"evt_1"}`)
	send(h, "", `{"id":"evt_1"}`)
	send(h, "", `{"id":"evt_2"}`)
	send(h, "", `not JSON`)
	// Output:
	// 201 charged
	// 201 charged (replayed)
	// 201 charged
	// 400 key-invalid
}

// An operator is asked whether order 77 went through, and who has done what for a tenant.
func ExampleWithReference() {
	guard := guardFor(idempotency.WithFindableScope(true), idempotency.WithReference(func(r *http.Request, body []byte) string {
		var order struct{ Number string }
		_ = json.Unmarshal(body, &order)
		return order.Number
	}))
	h := guard.Handler(http.HandlerFunc(charge))
	send(h, "key-1", `{"number":"77"}`)
	send(h, "key-2", `{"number":"78"}`)
	for _, f := range []idempotency.Finding{{Reference: "77"}, {Reference: "79"}, {Scope: "customer-1"}} {
		found, _, err := guard.Find(context.Background(), f)
		fmt.Println(len(found), err)
	}
	// Output:
	// 201 charged
	// 201 charged
	// 1 <nil>
	// 0 <nil>
	// 2 <nil>
}

// Somebody asks where a record has gone.
func ExampleWithTombstones() {
	guard := guardFor(idempotency.WithTombstones(7 * 24 * time.Hour))
	h := guard.Handler(http.HandlerFunc(charge))
	send(h, "key-1", "{}")
	ctx, key := context.Background(), idempotency.Key{Scope: "customer-1", Value: "key-1"}
	info, _ := guard.Lookup(ctx, key)
	_ = guard.Forget(ctx, key, info.Seen(), idempotency.Decision{Actor: "ada", Reason: "a test order"})
	gone, err := guard.Lookup(ctx, key)
	fmt.Println(errors.Is(err, idempotency.ErrNotFound))
	was := gone.Forgotten
	fmt.Printf("%v, attempt %d, forgotten by %s: %s\n", was.State, was.Attempt, was.Decisions[0].Actor, was.Decisions[0].Reason)
	send(h, "key-1", "{}")
	// Output:
	// 201 charged
	// true
	// completed, attempt 1, forgotten by ada: a test order
	// 201 charged
}

func ExampleWithObserver() {
	counts := map[event.Kind]int{}
	guard := guardFor(idempotency.WithObserver(func(_ context.Context, e event.Event) {
		counts[e.Kind]++ // a metric, in earnest; here all requests come one by one
	}))
	h := guard.Handler(http.HandlerFunc(charge))
	for range 3 {
		send(h, "key-1", "{}")
	}
	fmt.Println(counts[event.Run], counts[event.Replay])
	// Output:
	// 201 charged
	// 201 charged (replayed)
	// 201 charged (replayed)
	// 1 2
}

// A route takes larger requests than the others, and keeps the other limits.
func ExampleWithLimits() {
	guard := guardFor(idempotency.WithLimits(idempotency.Limits{RequestBody: 10, WaitingBytes: 16 << 20}))
	imports := guard.With(idempotency.WithLimits(idempotency.Limits{RequestBody: 100}))
	for _, g := range []*idempotency.Guard{guard, imports} {
		send(g.Handler(http.HandlerFunc(charge)), "key-1", "a body of 21 bytes...")
	}
	// Output:
	// 413 body-too-large
	// 201 charged
}

func ExampleNewSealer() {
	current := []byte("0123456789abcdef0123456789abcdef") // 32 bytes from your secret store
	sealer, err := idempotency.NewSealer(current)
	if err != nil {
		log.Fatal(err)
	}
	h := guardFor(idempotency.WithSealer(sealer)).Handler(http.HandlerFunc(charge))
	send(h, "key-1", "{}")
	send(h, "key-1", "{}")
	// Output:
	// 201 charged
	// 201 charged (replayed)
}

// The answer says how long the client may go on repeating its request.
func ExampleWithExpiryHeader() {
	guard := guardFor(idempotency.WithTTL(time.Hour), idempotency.WithExpiryHeader("Idempotency-TTL"))
	r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
	r.Header.Set("Idempotency-Key", "key-1")
	w := httptest.NewRecorder()
	guard.Handler(http.HandlerFunc(charge)).ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Idempotency-TTL"))
	// Output: 201 3600
}

// What the guard publishes is what its settings say.
func ExampleGuard_Policy() {
	p := guardFor(idempotency.WithRequired(true), idempotency.WithTTL(time.Hour)).Policy()
	fmt.Println(p.Required, p.TTL)
	for _, rule := range p.Rules() {
		if rule.ID == "replay" || rule.ID == "key-required" {
			fmt.Println(rule.Text)
		}
	}
	// Output:
	// true 1h0m0s
	// A request must have a key. Without one it is refused with key-missing.
	// An answer that counts is given to each repetition for 1 hour. Such a replay has the field Idempotent-Replayed: true.
}
