package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/client"
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

	transport, err := client.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	c := &http.Client{Transport: transport}
	resp, err := c.Post(server.URL+"/charges", "application/json", strings.NewReader(`{"amount":100}`))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "replayed:", client.Replayed(resp), "charges:", charges)
	// Output: 201 replayed: true charges: 1
}

// Whoever tries to charge for an order uses the same key, from whichever process.
func ExampleKeyFor() {
	ctx := client.WithKey(context.Background(), client.KeyFor("charge", "order-17"))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://psp.example/charges", strings.NewReader(`{"amount":100}`))
	if err != nil {
		log.Fatal(err)
	}
	_ = r // for an http.Client with a Transport
	fmt.Println(client.KeyFor("charge", "order-17"))
	// Output: iRvjZ_sshY_UszW-u4SH4XhJkwaX3Dz-R08k8GhUT0A
}

// A request whose outcome stays unknown leaves the key to try again with.
func ExampleError() {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer down.Close()
	transport, err := client.New(nil, client.WithAttempts(2))
	if err != nil {
		log.Fatal(err)
	}
	c := &http.Client{Transport: transport}
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

// An intent is noted with its key before it is sent, and found again by the process that
// is started after this one was killed.
func ExampleJournal() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	transport, err := client.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	c := &http.Client{Transport: transport}
	ctx := context.Background()

	journal, err := client.OpenJournal(filepath.Join(dir, "intents"))
	if err != nil {
		log.Fatal(err)
	}
	defer journal.Close()
	settle := func(e client.Entry) error {
		r, err := http.NewRequestWithContext(e.Context(ctx), http.MethodPost, server.URL, strings.NewReader(string(e.Payload)))
		if err != nil {
			return err
		}
		resp, err := c.Do(r)
		if err != nil {
			return err // the entry stays pending
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		fmt.Println(e.Name, "->", string(body)) // keep the answer, and then:
		return journal.Done(ctx, e.Name)
	}

	// At the start: what the process before this one has not settled.
	pending, err := journal.Pending(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range pending {
		if err := settle(e); err != nil {
			log.Fatal(err)
		}
	}
	// And then what is new.
	e, err := journal.Begin(ctx, "charge order-17", []byte(`{"amount":100}`))
	if err != nil {
		log.Fatal(err)
	}
	if err := settle(e); err != nil {
		log.Fatal(err)
	}
	// Output: charge order-17 -> {"amount":100}
}
