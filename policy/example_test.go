package policy_test

import (
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

const document = `{
	"openapi": "3.1.0",
	"info": {"title": "Charges", "version": "1.0.0"},
	"paths": {"/charges": {"post": {"responses": {"201": {"description": "The charge was made."}}}}}
}`

// A document that a tool has made is completed with the policy of each route.
func ExamplePolicy_Describe() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRequired(true))
	if err != nil {
		log.Fatal(err)
	}
	charges := guard.Policy()
	described, err := charges.Describe([]byte(document), "POST /charges")
	if err != nil {
		log.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]struct {
			Parameters []map[string]string
			Responses  map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(described, &api); err != nil {
		log.Fatal(err)
	}
	operation := api.Paths["/charges"]["post"]
	fmt.Println(operation.Parameters[0]["$ref"])
	fmt.Println(slices.Sorted(maps.Keys(operation.Responses)))
	// Output:
	// #/components/parameters/IdempotencyKey
	// [201 400 408 409 413 500 503]
}

// The policy is a page for people, and JSON for programs.
func ExampleHandler() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRoute("POST /charges"))
	if err != nil {
		log.Fatal(err)
	}
	h := policy.Handler(guard.Policy())

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/keys", http.NoBody))
	fmt.Println(w.Header().Get("Content-Type"), strings.Contains(w.Body.String(), `<section id="key-reused">`))

	r := httptest.NewRequest(http.MethodGet, "/keys", http.NoBody)
	r.Header.Set("Accept", "application/json")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var published struct {
		Routes []struct {
			Route string
			TTL   int `json:"ttl_seconds"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &published); err != nil {
		log.Fatal(err)
	}
	fmt.Println(published.Routes[0])
	// Output:
	// text/html; charset=utf-8 true
	// {POST /charges 86400}
}

// The rules of two routes are published where the problems of both point to.
func ExampleHandler_problems() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		idempotency.WithPolicyURL("https://api.example.com/idempotency"), idempotency.WithRequired(true))
	if err != nil {
		log.Fatal(err)
	}
	created := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	charges := guard.With(idempotency.WithRoute("POST /charges"))
	payouts := guard.With(idempotency.WithRoute("POST /payouts"), idempotency.WithRecovery(idempotency.Hold))

	mux := http.NewServeMux()
	mux.Handle("POST /charges", charges.Handler(created))
	mux.Handle("POST /payouts", payouts.Handler(created))
	mux.Handle("GET /idempotency", policy.Handler(charges.Policy(), payouts.Policy()))

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
