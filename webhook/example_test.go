package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/webhook"
)

// guardFor returns a guard for an example with a single sender.
func guardFor(opts ...idempotency.Option) *idempotency.Guard {
	sender := func(*http.Request) (string, error) { return "sender-1", nil }
	guard, err := idempotency.New(idempotency.NewMemoryStore(), sender, opts...)
	if err != nil {
		log.Fatal(err)
	}
	return guard
}

// process is the handler that a delivery is for.
func process(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }

// deliver makes one delivery of a webhook and prints what came back.
func deliver(h http.Handler, header http.Header, body string) {
	r := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(body))
	r.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Printf("%d replayed=%t\n", w.Code, w.Header().Get("Idempotent-Replayed") == "true")
}

func ExampleHeaderKey() {
	guard := guardFor(idempotency.WithKeyFunc(webhook.HeaderKey("X-GitHub-Delivery")), idempotency.WithRequired(true))
	h := guard.Handler(http.HandlerFunc(process))
	push := http.Header{"X-Github-Delivery": {"72d3162e-cc78-11e3-81ab-4c9367dc0958"}}
	deliver(h, push, `{"ref":"main"}`)
	deliver(h, push, `{"ref":"main"}`)
	deliver(h, http.Header{}, `{"ref":"main"}`)
	// Output:
	// 201 replayed=false
	// 201 replayed=true
	// 400 replayed=false
}

// The same event in both modes of CloudEvents over HTTP. Only what the event says
// counts here, because the two requests differ in form.
func ExampleCloudEventKey() {
	guard := guardFor(
		idempotency.WithKeyFunc(webhook.CloudEventKey),
		idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) {
			return idempotency.NewFingerprint(1), nil // source and id say it all
		}),
	)
	h := guard.Handler(http.HandlerFunc(process))
	deliver(h, http.Header{"Ce-Id": {"e1"}, "Ce-Source": {"/bank"}}, `{"amount":100}`)
	deliver(h, http.Header{"Content-Type": {"application/cloudevents+json"}},
		`{"specversion":"1.0","id":"e1","source":"/bank","type":"paid","data":{"amount":100}}`)
	deliver(h, http.Header{"Ce-Id": {"e1"}, "Ce-Source": {"/shop"}}, `{"amount":100}`)
	// Output:
	// 201 replayed=false
	// 201 replayed=true
	// 201 replayed=false
}

func ExampleJSONKey() {
	guard := guardFor(idempotency.WithKeyFunc(webhook.JSONKey("event.id")))
	h := guard.Handler(http.HandlerFunc(process))
	deliver(h, http.Header{}, `{"event":{"id":"evt_1"}}`)
	deliver(h, http.Header{}, `{"event":{"id":"evt_1"}}`)
	deliver(h, http.Header{}, `{"event":{"id":"evt_2"}}`)
	// Output:
	// 201 replayed=false
	// 201 replayed=true
	// 201 replayed=false
}

// A delivery that was not signed, or long ago, does not reach the guard. The signature is anew in
// each delivery, and the body may differ in counters.
func ExampleVerify() {
	const secret = "whsec_example"
	verify, err := webhook.Verify(webhook.Stripe(), []string{secret})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotency.New(idempotency.NewMemoryStore(), webhook.Scope)
	if err != nil {
		log.Fatal(err)
	}
	h := verify(guard.With(webhook.Stripe().Options()...).Handler(http.HandlerFunc(process)))

	signed := func(at time.Time, body string) http.Header {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
		return http.Header{"Stripe-Signature": {fmt.Sprintf("t=%d,v1=%x", at.Unix(), mac.Sum(nil))}}
	}
	first := `{"id":"evt_1","type":"invoice.paid","pending_webhooks":2}`
	again := `{"id":"evt_1","type":"invoice.paid","pending_webhooks":1}`
	deliver(h, signed(time.Now(), first), first)
	deliver(h, signed(time.Now(), again), again)
	deliver(h, signed(time.Now(), first), again) // another body than the signed one
	deliver(h, signed(time.Now().Add(-time.Hour), first), first)
	// Output:
	// 201 replayed=false
	// 201 replayed=true
	// 401 replayed=false
	// 401 replayed=false
}

// PayPal is asked whether it has sent a delivery. Here a function stands in for the request to
// /v1/notifications/verify-webhook-signature.
func ExampleVerifyWith() {
	askPayPal := func(_ context.Context, transmission string, _ []byte) (status string, err error) {
		if transmission == "unlucky" {
			return "", errors.New("connection refused")
		}
		return "SUCCESS", nil
	}
	verify, err := webhook.VerifyWith(webhook.PayPal(), func(r *http.Request, body []byte) error {
		switch status, err := askPayPal(r.Context(), r.Header.Get("Paypal-Transmission-Id"), body); {
		case err != nil:
			return fmt.Errorf("%w: %w", idempotency.ErrTryLater, err) // 503: PayPal delivers again
		case status != "SUCCESS":
			return errors.New("not of PayPal")
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotency.New(idempotency.NewMemoryStore(), webhook.Scope)
	if err != nil {
		log.Fatal(err)
	}
	h := verify(guard.With(webhook.PayPal().Options()...).Handler(http.HandlerFunc(process)))
	deliver(h, http.Header{"Paypal-Transmission-Id": {"unlucky"}}, `{"id":"WH-1"}`)
	deliver(h, http.Header{"Paypal-Transmission-Id": {"1"}}, `{"id":"WH-1"}`)
	deliver(h, http.Header{"Paypal-Transmission-Id": {"2"}}, `{"id":"WH-1"}`)
	// Output:
	// 503 replayed=false
	// 201 replayed=false
	// 201 replayed=true
}
