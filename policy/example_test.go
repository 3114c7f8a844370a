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
