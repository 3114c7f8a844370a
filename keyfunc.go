package idempotency

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"example.com/idempotency/internal/jcs"
	"example.com/idempotency/internal/token"
)

// KeyFromHeader returns a function for [WithKeyFunc] that takes the key from a header
// field as it is: "Webhook-Id" (Standard Webhooks), "X-GitHub-Delivery",
// "X-Shopify-Event-Id" and the like. A request without the field has no key; one with
// several, or an empty one, is refused.
//
// KeyFromHeader panics on what is no field name, as [http.ServeMux.Handle] does on an
// invalid pattern: no request would have a key, and so none would be protected.
func KeyFromHeader(name string) func(*http.Request, []byte) (string, error) {
	if !token.Is(name) {
		panic(fmt.Sprintf("idempotency: KeyFromHeader: %q is not a field name", name))
	}
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request, _ []byte) (string, error) { return singleField(r, name) }
}

func singleField(r *http.Request, name string) (string, error) {
	switch values := r.Header[name]; {
	case len(values) == 0:
		return "", nil
	case len(values) > 1 || values[0] == "":
		return "", errors.New("idempotency: empty or repeated " + name)
	default:
		return values[0], nil
	}
}

// KeyFromCloudEvent takes the key from a CloudEvent in binary or structured JSON mode,
// for [WithKeyFunc]. Producers guarantee that source and id together name one event
// (CloudEvents 1.0, section 3.1.1), so the key is a digest of both. A request that is no
// CloudEvent has no key; an event without one of the two, a batch, and a structured event
// in another format are refused.
func KeyFromCloudEvent(r *http.Request, body []byte) (string, error) {
	attribute := func(name string) (string, error) { return singleField(r, "Ce-"+name) }
	// A type with malformed parameters is a type all the same: taken for another one, the
	// event would have no key and run unprotected.
	media, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
	media = strings.TrimSpace(media)
	structured := strings.HasPrefix(media, "application/cloudevents")
	if structured {
		if media != "application/cloudevents+json" {
			return "", errors.New("idempotency: no single CloudEvent in JSON: " + media)
		}
		attribute = func(name string) (string, error) { return jsonField(body, strings.ToLower(name)) }
	}
	id, err := attribute("Id")
	if err != nil {
		return "", err
	}
	source, err := attribute("Source")
	switch {
	case err != nil:
		return "", err
	case id == "" && source == "" && !structured:
		return "", nil
	case id == "" || source == "":
		return "", errors.New("idempotency: CloudEvent without id or source")
	}
	return storeKey(source, id), nil
}

// KeyFromJSON returns a function for [WithKeyFunc] that takes the key from a field of a
// JSON body: a string or a number, at a path of member names separated by dots, "data.id"
// for example. A dot or a backslash in a name is written with a backslash before it, as
// for [FieldsFingerprint]. A body in which the field is absent, null or empty has no key;
// one that is not a JSON object, or where the field is anything else, is refused.
//
// KeyFromJSON panics if the path is malformed, which one with an empty name is.
func KeyFromJSON(path string) func(*http.Request, []byte) (string, error) {
	names, err := jcs.ParsePath(path)
	if err != nil {
		panic(fmt.Sprintf("idempotency: KeyFromJSON: %q is not a path of names separated by dots", path))
	}
	return func(_ *http.Request, body []byte) (string, error) { return jsonField(body, names...) }
}

// jsonField returns the string or number at a path in a JSON object. Names are compared
// exactly; of equal names the last one counts, as for encoding/json.
func jsonField(body []byte, path ...string) (string, error) {
	value := json.RawMessage(body)
	for depth, name := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			return "", err
		}
		if depth == 0 && object == nil {
			return "", errors.New("idempotency: body is null")
		}
		if value = object[name]; value == nil {
			return "", nil
		}
	}
	var text *string
	if json.Unmarshal(value, &text) == nil {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	var number json.Number
	err := json.Unmarshal(value, &number)
	return number.String(), err
}
