package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"example.com/idempotency"
	"example.com/idempotency/examples/orders/db"
)

// An api has the handlers of the service.
type api struct {
	db  *database
	log *slog.Logger
}

// routes protects what changes something. What must see every request stands outside the guard:
// the log, and authentication, whose result is the scope of a key.
func (a *api) routes(guard *idempotency.Guard) http.Handler {
	r := chi.NewRouter()
	r.Use(a.logRequests, middleware.Recoverer, authenticate)
	r.With(guard.Handler).Post("/orders", a.createOrder)
	r.Get("/orders/{id}", a.getOrder)
	return r
}

// createOrder inserts an order and the message about it. Both rows are committed together with the
// answer, so a retry finds either all three or none.
func (a *api) createOrder(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var wish struct {
		Item     string `json:"item"`
		Quantity int64  `json:"quantity"`
	}
	if err := json.NewDecoder(r.Body).Decode(&wish); err != nil || wish.Item == "" || wish.Quantity < 1 {
		http.Error(w, `the body must look like {"item":"tea","quantity":2}`, http.StatusBadRequest)
		return
	}
	order := db.Order{ID: "order_" + rand.Text(), Customer: customerOf(ctx), Item: wish.Item, Quantity: wish.Quantity}
	about, err := json.Marshal(order)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// The transaction is the last thing that the handler does. It may run twice if others are in its
	// way, so it does nothing that a rollback does not undo.
	err = a.db.inTx(ctx, func(tx db.DBTX) error {
		q := db.New(tx)
		if err := q.CreateOrder(ctx, order); err != nil {
			return err
		}
		return q.CreateMessage(ctx, db.CreateMessageParams{
			Message: db.Message{ID: "message_" + rand.Text(), Topic: "orders.created", Payload: string(about)},
			Created: time.Now().UnixMicro(),
		})
	})
	if err != nil { // it was rolled back, and a retry runs again
		a.log.ErrorContext(ctx, "order not made", "error", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the order was not made", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Location", "/orders/"+order.ID)
	writeJSON(w, http.StatusCreated, order) // the client gets it after the commit
}

func (a *api) getOrder(w http.ResponseWriter, r *http.Request) {
	order, err := db.New(a.db.read).GetOrder(r.Context(), db.GetOrderParams{
		ID:       chi.URLParam(r, "id"),
		Customer: customerOf(r.Context()),
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such order", http.StatusNotFound)
	case err != nil:
		a.log.ErrorContext(r.Context(), "order not read", "error", err)
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		writeJSON(w, http.StatusOK, order)
	}
}

// logRequests writes a line for each request, also for one that the guard has answered.
func (a *api) logRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		seen := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			a.log.InfoContext(r.Context(), "request",
				"method", r.Method, "path", r.URL.Path, "status", seen.Status(), "took", time.Since(begin),
				"replayed", seen.Header().Get("Idempotent-Replayed") == "true")
		}()
		next.ServeHTTP(seen, r)
	})
}

// customers has the name of each customer by the SHA-256 of the customer's token. Yours are in a
// database.
var customers = map[[sha256.Size]byte]string{
	sha256.Sum256([]byte("token-of-alice")): "alice",
	sha256.Sum256([]byte("token-of-bob")):   "bob",
}

type customerKey struct{}

// authenticate lets customers in whose token is known.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		customer := customers[sha256.Sum256([]byte(token))]
		if !ok || customer == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "unknown customer", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), customerKey{}, customer)))
	})
}

func customerOf(ctx context.Context) string {
	customer, _ := ctx.Value(customerKey{}).(string)
	return customer
}

// customerScope is the guard's scope: a key belongs to the customer that authenticate has let in.
// The guard refuses a request without one.
func customerScope(r *http.Request) (string, error) { return customerOf(r.Context()), nil }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
