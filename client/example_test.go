package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

// A gateway loses the answer to the first request. The client asks again, with the same
// key, and gets the recorded answer: the card is charged once.
func Example() {
	charges, lost := 0, false
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	if err != nil {
		log.Fatal(err)
	}
	charge := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		charges++
		w.WriteHeader(http.StatusCreated)
	}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !lost {
			lost = true
			charge.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		charge.ServeHTTP(w, r)
	}))
	defer server.Close()

	transport, err := client.New(nil, client.WithServer(profile.Guard(), "127.0.0.1")) // it honours keys
	if err != nil {
		log.Fatal(err)
	}
	c := &http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}
	resp, err := c.Post(server.URL+"/charges", "application/json", strings.NewReader(`{"amount":100}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "replayed:", client.Replayed(resp), "charges:", charges)
	// Output: 201 replayed: true charges: 1
}

// Every process that tries to charge for an order uses the same key.
func ExampleIntentFor() {
	charge := client.IntentFor("charge", "order-17")
	ctx := charge.Context(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://psp.example/charges", strings.NewReader(`{"amount":100}`))
	if err != nil {
		log.Fatal(err)
	}
	_ = r // for an http.Client with a Transport
	fmt.Println(charge.Key)
	// Output: iRvjZ_sshY_UszW-u4SH4XhJkwaX3Dz-R08k8GhUT0A
}

// A request whose outcome stays unknown leaves the key to try again with.
func ExampleError() {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer down.Close()
	transport, err := client.New(nil, client.WithServer(profile.Guard(), "127.0.0.1"), client.WithAttempts(2))
	if err != nil {
		log.Fatal(err)
	}
	c := &http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}
	resp, err := c.Post(down.URL, "application/json", strings.NewReader(`{"amount":100}`))
	if err == nil {
		resp.Body.Close()
	}
	var unknown *client.Error
	if errors.Is(err, client.ErrOutcomeUnknown) && errors.As(err, &unknown) {
		fmt.Println("keep the key:", len(unknown.Key) > 0, "attempts:", len(unknown.Attempts))
	}
	// Output: keep the key: true attempts: 2
}
