// Package shop holds the parts that the router examples share: callers, a guard for their
// keys, and charges. The programs hold the routes.
package shop

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/idempotency"
)

// Serve serves the routes on the address of the flag -addr until a signal ends the program.
func Serve(routes func(*idempotency.Guard) http.Handler) {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	guard, err := NewGuard()
	if err != nil {
		log.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{
		Handler:           routes(guard),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	go func() { <-stopped.Done(); done <- shutdown(server, guard) }()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
}

// shutdown ends server and guard together. Close the store when it has returned.
func shutdown(server *http.Server, guard *idempotency.Guard) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- guard.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-recorded)
}

// NewGuard returns a guard whose scope is the caller.
func NewGuard() (*idempotency.Guard, error) {
	return idempotency.New(idempotency.NewMemoryStore(), func(r *http.Request) (string, error) {
		caller, ok := r.Context().Value(callerKey{}).(string)
		if !ok {
			return "", errors.New("request was not authenticated")
		}
		return caller, nil
	})
}

// callers has the name of each caller by the SHA-256 of the caller's token. Yours are in a
// database.
var callers = map[[sha256.Size]byte]string{
	sha256.Sum256([]byte("token-of-alice")): "alice",
	sha256.Sum256([]byte("token-of-bob")):   "bob",
}

type callerKey struct{}

// ErrUnknownCaller says that a request has no known bearer token.
var ErrUnknownCaller = errors.New("unknown caller")

// Authenticate returns the request with its caller in the context, where the guard's scope
// function looks for it. That function does not see the values in a router's own context.
func Authenticate(r *http.Request) (*http.Request, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	caller := callers[sha256.Sum256([]byte(token))]
	if !ok || caller == "" {
		return nil, ErrUnknownCaller
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)), nil
}

// An Order is the body of a request.
type Order struct {
	Amount int `json:"amount"`
}

// A Receipt is the answer to an Order.
type Receipt struct {
	Run     int64 `json:"run"`     // the number of runs so far, including this one
	Attempt int   `json:"attempt"` // the attempt of the key
}

// Errors of Charge.
var (
	ErrInvalid  = errors.New("the amount must be positive")
	ErrDeclined = errors.New("the card was declined")
)

// Like the test mode of a payment provider, Charge has amounts that fail.
const (
	Declined = 402 // is refused with ErrDeclined
	Cut      = 499 // cuts the connection, at the first attempt
)

var runs atomic.Int64

// Charge makes a charge.
func Charge(ctx context.Context, order Order) (Receipt, error) {
	receipt := Receipt{Run: runs.Add(1), Attempt: 1}
	if op, ok := idempotency.FromContext(ctx); ok {
		receipt.Attempt = op.Attempt()
	}
	switch {
	case order.Amount <= 0:
		return receipt, ErrInvalid
	case order.Amount == Declined:
		return receipt, ErrDeclined
	case order.Amount == Cut && receipt.Attempt == 1:
		panic(http.ErrAbortHandler)
	}
	return receipt, nil
}
