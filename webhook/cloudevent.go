package webhook

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"example.com/idempotency/internal/digest"
)

// CloudEventKey takes the key from a CloudEvent over HTTP, in binary mode or in structured
// JSON mode. It is an [idempotency.KeyFunc]. Producers guarantee that source and id together
// name one event (CloudEvents 1.0, section 3.1.1), so the key is a digest of both, and the
// same in either mode: in binary mode, quotes around a field and one round of
// percent-encoding are undone, as the HTTP binding demands of a receiver (section 3.1.3.2).
// A producer that does not encode what it writes into these fields must not have names
// that differ only in an escape, such as "a%2Fb" and "a/b".
//
// A request that is not a CloudEvent has no key. The function refuses an event without
// source or id, one whose fields cannot be decoded, a batch of events, and a structured
// event in a format other than JSON.
func CloudEventKey(r *http.Request, body []byte) (string, error) {
	attribute := func(name string) (string, error) { return attributeField(r, "Ce-"+name) }
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

// A quoted string is as in RFC 7230, section 3.2.6.
var (
	quotedString = regexp.MustCompile(`(?s)^"((?:[^"\\]|\\.)*)"$`)
	quotedPair   = regexp.MustCompile(`(?s)\\(.)`)
)

// attributeField returns the attribute of an event that a field has, or an empty string if there is no such field.
func attributeField(r *http.Request, name string) (string, error) {
	field, err := singleField(r, name)
	if err != nil || field == "" {
		return "", err
	}
	encoded := field
	if inside := quotedString.FindStringSubmatch(field); inside != nil {
		encoded = quotedPair.ReplaceAllString(inside[1], "$1")
	} else if field[0] == '"' {
		return "", errors.New("webhook: the field " + name + " begins with a quote that does not end it")
	}
	// A percent sign that begins no escape is not kept: its "5%" would be the "5%25" of another event.
	value, err := url.PathUnescape(encoded)
	if err != nil || value == "" || !utf8.ValidString(value) {
		return "", errors.New("webhook: the field " + name + " is not percent-encoded UTF-8")
	}
	return value, nil
}

// CloudEvents is the sender of any service that sends CloudEvents over HTTP. Give it the name of
// the service, because each service is a sender of its own.
//
// Source and id together name the event; see [CloudEventKey]. CloudEvents does not say how events
// are signed. Its specification of webhooks has the sender show a token in the field
// Authorization, and Verify takes these tokens for its secrets. A token protects neither the
// body nor the name from those who see it. Where a service signs its events in a way of its
// own, use [VerifyWith]. Nothing is said about redelivery; the producers must not use a name
// twice, so the body does not count in a mismatch.
//
// Sources:
//
//   - https://github.com/cloudevents/spec/blob/main/cloudevents/spec.md#id
//   - https://github.com/cloudevents/spec/blob/main/cloudevents/http-webhook.md#3-authorization
//   - https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/http-protocol-binding.md
func CloudEvents(name string) Sender {
	return Sender{
		Name:        name,
		Key:         CloudEventKey,
		Fingerprint: nameOnly,
		TTL:         7 * day,
		signing:     &scheme{key: tokenSecret, read: readToken},
	}
}

// A tokenKey is a token that the sender shows. It compares digests, which have one length.
type tokenKey [sha256.Size]byte

func tokenSecret(secret string) (key, error) { return tokenKey(sha256.Sum256([]byte(secret))), nil }

func (k tokenKey) signed(_ [][]byte, sums []sum) bool {
	for _, s := range sums {
		shown := sha256.Sum256(s.bytes)
		if subtle.ConstantTimeCompare(shown[:], k[:]) == 1 {
			return true
		}
	}
	return false
}

func readToken(r *http.Request, _ []byte, _ string) (*signature, error) {
	value, err := requiredField(r, "Authorization")
	if err != nil {
		return nil, err
	}
	name, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(name, "Bearer") || token == "" {
		return nil, unsigned("The field Authorization has no bearer token.")
	}
	return &signature{contents: [][][]byte{nil}, sums: []sum{{bytes: []byte(token)}}}, nil
}
