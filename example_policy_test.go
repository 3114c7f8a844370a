package idempotency_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// The answer says how long the client may go on repeating its request.
func ExampleWithExpiryHeader() {
	guard := guardFor(idempotency.WithTTL(time.Hour), idempotency.WithExpiryHeader(idempotency.ExpiryHeader))
	r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
	r.Header.Set("Idempotency-Key", "key-1")
	w := httptest.NewRecorder()
	guard.Handler(http.HandlerFunc(charge)).ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Idempotency-TTL"))
	// Output: 201 3600
}

// The rules of two routes are published where the problems of both point to.
func ExamplePolicyHandler() {
	guard := guardFor(idempotency.WithPolicyURL("https://api.example.com/idempotency"), idempotency.WithRequired(true))
	charges := guard.With(idempotency.WithRoute("POST /charges"))
	payouts := guard.With(idempotency.WithRoute("POST /payouts"), idempotency.WithRecovery(idempotency.Hold))

	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges.Handler(http.HandlerFunc(charge)))
	mux.Handle("POST /payouts", payouts.Handler(http.HandlerFunc(charge)))
	mux.Handle("GET /idempotency", idempotency.PolicyHandler(charges, payouts))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/charges", http.NoBody))
	var p problem.Document
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Type)

	w = httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/idempotency", http.NoBody))
	fmt.Println(w.Header().Get("Content-Type"), strings.Contains(w.Body.String(), `id="key-missing"`))
	// Output:
	// https://api.example.com/idempotency#key-missing
	// text/html; charset=utf-8 true
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
