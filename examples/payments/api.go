package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/console"
)

// maxWait is how long a duplicate of a transfer waits for the answer of the first.
const maxWait = 10 * time.Second

// newGuard returns the guard of all routes. Each caller has keys of its own.
func newGuard(store idempotency.Store, opts ...idempotency.Option) (*idempotency.Guard, error) {
	return idempotency.New(store, callerScope, opts...)
}

// newAPI returns the routes. Authentication is outside the guard: the caller is the scope of
// a key and must be known first, and a stranger must not see a recorded answer.
func newAPI(guard *idempotency.Guard, p *provider) http.Handler {
	mux := http.NewServeMux()
	guards := make(map[string]*idempotency.Guard)
	protect := func(pattern string, pay http.Handler, opts ...idempotency.Option) {
		guards[pattern] = guard.With(opts...)
		mux.Handle(pattern, authenticate(guards[pattern].Handler(pay)))
	}

	protect("POST /charges", pay(p, "charges"),
		idempotency.WithRequired(true),
		idempotency.WithTTL(24*time.Hour))
	// A payout cannot be called back. If its outcome is unknown, it is held until somebody
	// has looked.
	protect("POST /payouts", pay(p, "payouts"),
		idempotency.WithRequired(true),
		idempotency.WithTTL(7*24*time.Hour),
		idempotency.WithRecovery(idempotency.Hold))
	protect("POST /transfers", pay(p, "transfers"),
		idempotency.WithWait(maxWait))

	mux.HandleFunc("GET /count", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, p.counts())
	})
	screens, err := console.New(guard, console.Options{
		Authorize: onCall,
		GuardOf:   func(route string) *idempotency.Guard { return guards[route] },
	})
	if err != nil { // the store cannot list its records
		slog.Warn("no console", "error", err)
		return mux
	}
	mux.Handle("/console/", http.StripPrefix("/console", screens))
	return mux
}

// onCall lets whoever sits at this machine decide about held keys. Yours asks who has signed in.
func onCall(r *http.Request) (console.Actor, error) {
	actor, err := console.OnThisMachine(r)
	actor.Name, actor.Decide, actor.ReadAnswers = "on call", true, true
	return actor, err
}

// callers has the name of each caller by the SHA-256 of the caller's token. Yours are in a
// database.
var callers = map[[sha256.Size]byte]string{
	sha256.Sum256([]byte("token-of-alice")): "alice",
	sha256.Sum256([]byte("token-of-bob")):   "bob",
}

type callerKey struct{}

// authenticate lets callers in whose token is known, and puts the caller's name into the
// request's context.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		caller := callers[sha256.Sum256([]byte(token))]
		if !ok || caller == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, http.StatusUnauthorized, "unknown caller")
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// callerScope returns the caller that authenticate has let in.
func callerScope(r *http.Request) (string, error) {
	caller, ok := r.Context().Value(callerKey{}).(string)
	if !ok {
		return "", errors.New("request was not authenticated")
	}
	return caller, nil
}

// An order is the body of a request.
type order struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// A payment is the answer to an order.
type payment struct {
	ID string `json:"id"`
	order
	// Attempt is above 1 when an earlier run with the same key ended without an answer.
	Attempt int `json:"attempt"`
}

// pay handles the payments of one kind. It knows nothing of keys and replays.
func pay(p *provider, kind string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o, status, err := readOrder(r.Body)
		if err != nil {
			writeError(w, status, err.Error())
			return
		}
		made, err := p.pay(r.Context(), kind, o)
		if err != nil {
			slog.ErrorContext(r.Context(), "payment not made", "kind", kind, "error", err)
			w.Header().Set("Retry-After", "1")
			writeError(w, http.StatusServiceUnavailable, "the payment was not made")
			return
		}
		w.Header().Set("Location", "/"+kind+"/"+made.ID)
		writeJSON(w, http.StatusCreated, made)
	})
}

// readOrder returns the order, or the status that refuses it. A refusal is an answer like
// any other: the guard records it, and a retry gets the same one.
func readOrder(body io.Reader) (o order, status int, err error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return o, http.StatusBadRequest, errors.New(`the body must look like {"amount":100,"currency":"eur"}`)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return o, http.StatusBadRequest, errors.New("the body must be one JSON object")
	}
	switch {
	case o.Amount <= 0:
		return o, http.StatusUnprocessableEntity, errors.New("the amount must be positive")
	case o.Currency != "eur" && o.Currency != "usd":
		return o, http.StatusUnprocessableEntity, errors.New("the currency must be eur or usd")
	}
	return o, 0, nil
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]string{"error": message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		slog.Error("answer not written", "error", err)
	}
}
