// Command quickstart is the smallest program to copy that makes a route safe to retry: it
// verifies its callers, bounds the time of each connection and shuts down in order.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"example.com/idempotency"
)

// tokens holds the SHA-256 of each tenant's token. Yours are in a database.
var tokens = map[string][sha256.Size]byte{"alice": sha256.Sum256([]byte("alice's token"))}

// createCharge runs once for each key, however often the client retries.
func createCharge(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "charged")
}

func main() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), tenant, idempotency.WithRequired(true))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", authenticate(guard.Handler(http.HandlerFunc(createCharge))))
	server := &http.Server{
		Addr: "127.0.0.1:8080", Handler: mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	done := make(chan error, 1)
	go func() { <-stopped.Done(); done <- shutdown(server, guard) }()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
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

type tenantKey struct{}

// authenticate stands outside the guard and so verifies the caller of every replay too.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, token, _ := r.BasicAuth()
		got, want := sha256.Sum256([]byte(token)), tokens[name]
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="charges"`)
			http.Error(w, "unknown tenant or wrong token", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, name)))
	})
}

// tenant is the guard's scope: a key belongs to the tenant that authenticate has verified.
func tenant(r *http.Request) (string, error) {
	name, ok := r.Context().Value(tenantKey{}).(string)
	if !ok {
		return "", errors.New("request was not authenticated")
	}
	return name, nil
}
