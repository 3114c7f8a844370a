package webhook_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

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
