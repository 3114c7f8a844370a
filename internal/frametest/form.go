package frametest

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// Forms requires that functions of a guard can read the form of a request, and that its handler still finds all of it. The
// server answers a POST with the field amount. own reads a field off the context of the framework; it may be nil.
func Forms(t *testing.T, serve func(t testing.TB, guard *idempotency.Guard) (url string), own func(ctx context.Context, name string) string) {
	readers := map[string]func(r *http.Request, name string) string{
		"FormValue":      (*http.Request).FormValue,
		"FormValue of a": func(r *http.Request, _ string) string { return r.FormValue("a") }, // which is in the URL
	}
	if own != nil {
		readers["the framework"] = func(r *http.Request, name string) string { return own(r.Context(), name) }
	}
	for how, read := range readers {
		seen := ""
		order := func(r *http.Request, _ []byte) string { seen = read(r, "order"); return seen }
		fingerprint := func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
			return idempotency.NewFingerprint(1, []byte(order(r, body))), nil
		}
		for name, opts := range map[string][]idempotency.Option{
			"reference":   {idempotency.WithReference(order)},
			"fingerprint": {idempotency.WithFingerprint(fingerprint)},
			"key":         {idempotency.WithKeyFunc(func(r *http.Request, body []byte) (string, error) { return order(r, body), nil })},
			"no key":      {idempotency.WithKeyFunc(func(r *http.Request, body []byte) (string, error) { order(r, body); return "", nil })},
		} {
			t.Run(how+" for a "+name, func(t *testing.T) {
				guard, _ := NewGuard(t, idempotency.SharedScope, opts...)
				url := serve(t, guard) + "?a=o1"
				for _, replayed := range []bool{false, true} {
					got, _ := PostBody(t, url, "order=o1&amount=100", map[string]string{"Content-Type": "application/x-www-form-urlencoded"})
					require.Equal(t, Answer{Status: http.StatusCreated, Body: "100", Replayed: replayed && name != "no key"}, got)
					require.Equal(t, "o1", seen)
				}
			})
		}
	}
}

// forms is [Forms] of an adapter.
func (a Adapter) forms(t *testing.T) {
	Forms(t, func(t testing.TB, guard *idempotency.Guard) string {
		return a.Serve(t, nil, guard, Link(func(c Context) error { return c.Answer(http.StatusCreated, c.Field("amount")) }))
	}, func(ctx context.Context, name string) string {
		c, _ := a.Find(ctx)
		return c.Field(name)
	})
}
