package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	"example.com/idempotency/internal/digest"
)

// CloudEventKey takes the key from a CloudEvent over HTTP, in binary mode or in structured
// JSON mode. It is an [idempotency.KeyFunc]. Producers guarantee that source and id together
// name one event (CloudEvents 1.0, section 3.1.1), so the key is a digest of both, and the
// same in either mode.
//
// A request that is not a CloudEvent has no key. The function refuses an event without
// source or id, a batch of events, and a structured event in a format other than JSON.
func CloudEventKey(r *http.Request, body []byte) (string, error) {
	attribute := func(name string) (string, error) { return singleField(r, "Ce-"+name) }
	// An event whose type has malformed parameters is still an event. If it were taken for
	// something else, it would have no key and run unprotected.
	media, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
	media = strings.TrimSpace(media)
	structured := strings.HasPrefix(media, "application/cloudevents")
	if structured {
		if media != "application/cloudevents+json" {
			return "", errors.New("webhook: not a single CloudEvent in JSON: " + media)
		}
		attribute = func(name string) (string, error) { return jsonMember(body, strings.ToLower(name)) }
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
		return "", errors.New("webhook: CloudEvent without id or source")
	}
	key := digest.Key(source, id)
	return base64.RawURLEncoding.EncodeToString(key[:]), nil
}
