package webhook

import (
	"crypto/sha256"
	"net/http"
	"strings"
)

// Stripe is the sender of Stripe's webhooks, both of snapshot events and of thin ones.
//
// The member "id" of the body names the event. Stripe signs time and body with HMAC-SHA256, anew
// for each delivery, in the field Stripe-Signature. Deliveries of one event differ in the
// signature and in the member "pending_webhooks" of the body, so the body does not count in a
// mismatch. Stripe redelivers for three days. The TTL is longer because people can send events
// again that are 30 days old. The secrets are those of the endpoint, with their prefix "whsec_".
//
// Sources:
//
//   - https://docs.stripe.com/webhooks
//   - https://docs.stripe.com/webhooks/process-undelivered-events
//   - https://docs.stripe.com/api/events/object
//   - https://github.com/stripe/stripe-go/blob/master/webhook/client.go
func Stripe() Sender {
	return Sender{
		Name:        "Stripe",
		Key:         JSONKey("id"),
		Fingerprint: nameOnly,
		TTL:         31 * day,
		signing: &scheme{
			key: func(secret string) (key, error) {
				return &hmacKey{hash: sha256.New, version: "v1", secret: []byte(secret)}, nil
			},
			read: readStripe,
		},
	}
}

// readStripe reads a field such as t=1492774577,v1=5257a8…,v0=6ffbb5… It passes over what is
// neither the time nor a signature of version 1.
func readStripe(r *http.Request, body []byte, _ string) (*signature, error) {
	const name = "Stripe-Signature"
	value, err := requiredField(r, name)
	if err != nil {
		return nil, err
	}
	var at string
	var s signature
	for part := range strings.SplitSeq(value, ",") {
		label, text, ok := strings.Cut(part, "=")
		switch {
		case !ok, label == "t" && at != "":
			return nil, malformed("The field " + name + " is malformed.")
		case label == "t":
			at = text
		case label == "v1":
			mac, err := decodeHex(text)
			if err != nil {
				return nil, malformed("The field " + name + " is malformed.")
			}
			s.sums = append(s.sums, sum{"v1", mac})
		}
	}
	if s.at, err = parseTime(at); err != nil {
		return nil, err
	}
	s.contents = [][][]byte{{[]byte(at), {'.'}, body}}
	return &s, nil
}
