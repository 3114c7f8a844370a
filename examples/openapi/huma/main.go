// Command huma serves an API that is made with huma behind a guard. The OpenAPI document that
// huma makes is completed with the guard's policy before it is served.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"example.com/idempotency"
	"example.com/idempotency/policy"
)

func main() {
	guard, err := newGuard()
	if err != nil {
		log.Fatal(err)
	}
	h, err := routes(guard)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr: "127.0.0.1:8080", Handler: h,
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

func newGuard() (*idempotency.Guard, error) {
	return idempotency.New(idempotency.NewMemoryStore(), tenant,
		idempotency.WithRoute("POST /charges"), idempotency.WithRequired(true),
		idempotency.WithPolicyURL("http://127.0.0.1:8080/idempotency"))
}

type order struct {
	Body struct {
		Amount int `json:"amount" minimum:"1"`
	}
}

type receipt struct {
	Body struct {
		Charged int `json:"charged"`
	}
}

func charge(_ context.Context, o *order) (*receipt, error) {
	r := new(receipt)
	r.Body.Charged = o.Body.Amount
	return r, nil
}

func routes(guard *idempotency.Guard) (http.Handler, error) {
	inner := http.NewServeMux()
	api := humago.New(inner, huma.DefaultConfig("Charges", "1.0.0"))
	huma.Register(api, huma.Operation{
		OperationID: "charge", Summary: "Make a charge",
		Method: http.MethodPost, Path: "/charges", DefaultStatus: http.StatusCreated,
	}, charge)

	document, err := json.Marshal(api.OpenAPI())
	if err != nil {
		return nil, err
	}
	document, err = guard.Policy().Describe(document, "POST /charges")
	if err != nil {
		return nil, err
	}

	mux := http.NewServeMux()
	mux.Handle("POST /charges", authenticate(guard.Handler(inner)))
	mux.Handle("GET /idempotency", policy.Handler(guard.Policy()))
	for _, path := range []string{"/openapi.json", "/openapi.yaml"} { // JSON is YAML, for huma's page at /docs
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/openapi+json")
			_, _ = w.Write(document)
		})
	}
	mux.Handle("/", inner)
	return mux, nil
}

// tokens are the digests of the tenants' tokens.
var tokens = map[string][sha256.Size]byte{"alice": sha256.Sum256([]byte("alice's token"))}

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

func tenant(r *http.Request) (string, error) {
	name, ok := r.Context().Value(tenantKey{}).(string)
	if !ok {
		return "", errors.New("request was not authenticated")
	}
	return name, nil
}
