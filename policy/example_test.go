package policy_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/policy"
)

// A tree is a JSON object, as encoding/json reads it.
type tree = map[string]any

// child returns the object that is a member of another one, and makes it if it is not there.
func child(object tree, name string) tree {
	if object[name] == nil {
		object[name] = tree{}
	}
	return object[name].(tree)
}

// add adds the members that an object does not have yet.
func add(object tree, members any) {
	for name, value := range members.(tree) {
		if object[name] == nil {
			object[name] = value
		}
	}
}

// describe adds a policy to one operation of an OpenAPI document.
func describe(document tree, path, method string, p policy.Policy) {
	var fragment tree
	if err := json.Unmarshal(p.OpenAPI(), &fragment); err != nil {
		log.Fatal(err)
	}
	for kind, components := range fragment["components"].(tree) {
		add(child(child(document, "components"), kind), components)
	}
	operation := child(child(child(document, "paths"), path), method)
	for _, response := range child(operation, "responses") { // the operation's own
		add(child(response.(tree), "headers"), fragment["headers"])
	}
	more := fragment["operation"].(tree)
	if parameters := more["parameters"].([]any); len(parameters) > 0 { // none for a key in the body
		own, _ := operation["parameters"].([]any)
		operation["parameters"] = append(own, parameters...)
	}
	add(child(operation, "responses"), more["responses"])
}

const document = `{
	"openapi": "3.1.0",
	"info": {"title": "Charges", "version": "1.0.0"},
	"paths": {"/charges": {"post": {"responses": {"201": {"description": "The charge was made."}}}}}
}`

// A document that a tool has made is completed with the policy of each route.
func ExamplePolicy_OpenAPI() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRequired(true))
	if err != nil {
		log.Fatal(err)
	}
	var api tree
	if err := json.Unmarshal([]byte(document), &api); err != nil {
		log.Fatal(err)
	}
	describe(api, "/charges", "post", guard.Policy())

	operation := api["paths"].(tree)["/charges"].(tree)["post"].(tree)
	fmt.Println(operation["parameters"])
	for _, status := range []string{"201", "409", "503"} {
		fmt.Println(status, operation["responses"].(tree)[status] != nil)
	}
	// Output:
	// [map[$ref:#/components/parameters/IdempotencyKey]]
	// 201 true
	// 409 true
	// 503 true
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
