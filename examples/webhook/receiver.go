package main

import (
	"io"
	"net/http"

	"example.com/idempotency/webhook"
)

// This file is the half that senders see: verify, store, answer.

// An endpoint receives the deliveries of one sender.
type endpoint struct {
	path   string
	sender webhook.Sender
	secret string
	// sign signs a delivery as the sender does, for the other half of this example.
	sign func(h http.Header, secret, name string, body []byte)
}

var endpoints = []endpoint{
	{"/hooks/payments", webhook.Stripe(), "whsec_example", signStripe},
	{"/hooks/code", webhook.GitHub(), "a long random text", signGitHub},
	{"/hooks/people", webhook.Standard("people service"), "whsec_ZXhhbXBsZSBvZiBhIHNlY3JldCE=", signStandard},
}

// newReceiver returns the handler of all endpoints.
func newReceiver(db *database) (http.Handler, error) {
	mux := http.NewServeMux()
	for _, e := range endpoints {
		verify, err := webhook.Verify(e.sender, []string{e.secret})
		if err != nil {
			return nil, err
		}
		mux.Handle("POST "+e.path, verify(accept(db, e.sender)))
	}
	return mux, nil
}

// accept stores events and answers at once: senders wait for seconds only, and take a slow answer
// for none. It needs no guard. The inbox has one row for each name of an event, and a delivery
// whose event is there already gets the same answer.
func accept(db *database, sender webhook.Sender) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // in memory, and verified
		if err != nil {
			http.Error(w, "unreadable", http.StatusBadRequest)
			return
		}
		name, err := sender.Key(r, body)
		if err != nil || name == "" {
			http.Error(w, "an event without a name", http.StatusBadRequest)
			return
		}
		if err := db.store(sender.Name, name, body); err != nil {
			http.Error(w, "not stored", http.StatusServiceUnavailable) // the sender delivers again
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
