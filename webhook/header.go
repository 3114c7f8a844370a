package webhook

import (
	"errors"
	"fmt"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/internal/token"
)

// HeaderKey returns a function that takes the key from a header field, as it is. Several
// senders name their deliveries in one: "Webhook-Id" (Standard Webhooks),
// "X-GitHub-Delivery", "X-Shopify-Webhook-Id". A request without the field has no key. The
// function refuses a request with an empty field, or with more than one.
//
// HeaderKey panics if name is not a valid field name, as [http.ServeMux.Handle] does for an
// invalid pattern: no request could have a key, and so none would be protected.
func HeaderKey(name string) idempotency.KeyFunc {
	if !token.Is(name) {
		panic(fmt.Sprintf("webhook: HeaderKey: %q is not a field name", name))
	}
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request, _ []byte) (string, error) { return singleField(r, name) }
}

// singleField returns the value of a field, whose name is in canonical form, or an empty
// string if there is none.
func singleField(r *http.Request, name string) (string, error) {
	switch values := r.Header[name]; {
	case len(values) == 0:
		return "", nil
	case len(values) > 1 || values[0] == "":
		return "", errors.New("webhook: empty or repeated field " + name)
	default:
		return values[0], nil
	}
}

// maxField bounds the work that a field of a forged delivery can cause. Sixteen signatures take 2 KiB.
const maxField = 8 << 10

// requiredField returns the value of a field. Its errors are refusals.
func requiredField(r *http.Request, name string) (string, error) {
	value, err := singleField(r, http.CanonicalHeaderKey(name))
	switch {
	case err != nil:
		return "", malformed("The field " + name + " is empty or repeated.")
	case len(value) > maxField:
		return "", malformed("The field " + name + " is too long.")
	case value == "":
		return "", unsigned("The field " + name + " is missing.")
	}
	return value, nil
}
