// Command quickstart is the smallest program that makes a route safe to retry and is fit
// to be copied: it verifies its callers and bounds the time of each connection.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log"
	"net/http"
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
	log.Fatal(server.ListenAndServe())
}

type tenantKey struct{}

// authenticate stands outside the guard, so that it verifies the caller of every replay too.
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
