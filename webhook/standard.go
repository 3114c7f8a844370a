package webhook

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// Standard is the sender of any service that follows Standard Webhooks 1.0. Give it the name of
// the service, because each service is a sender of its own.
//
// The field Webhook-Id names the event. Name, time and body are signed, anew for each delivery:
// with HMAC-SHA256 if the secret begins with "whsec_", with Ed25519 if it begins with "whpk_",
// which is the sender's public key. Deliveries of one event differ in time and signature. The
// specification recommends to redeliver for days; its example ends after 76 hours.
//
// Sources:
//
//   - https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
func Standard(name string) Sender {
	return Sender{
		Name:        name,
		Key:         HeaderKey("Webhook-Id"),
		Fingerprint: nameOnly,
		TTL:         7 * day,
		signing:     &scheme{key: standardKey, read: readStandard},
	}
}

// The versions of signatures.
const (
	standardHMAC    = "v1"
	standardEd25519 = "v1a"
)

// standardKey takes a secret without a prefix for a symmetric one, as the libraries of the
// specification do.
func standardKey(secret string) (key, error) {
	if text, ok := strings.CutPrefix(secret, "whpk_"); ok {
		public, err := decodeBase64(text)
		if err != nil || len(public) != ed25519.PublicKeySize {
			return nil, errors.New("it is not an Ed25519 key in base64")
		}
		return ed25519Key(public), nil
	}
	if strings.HasPrefix(secret, "whsk_") {
		return nil, errors.New("it is the private key of the sender")
	}
	bytes, err := decodeBase64(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(bytes) == 0 {
		return nil, errors.New("it is not base64")
	}
	return &hmacKey{hash: sha256.New, version: standardHMAC, secret: bytes}, nil
}

type ed25519Key ed25519.PublicKey

func (k ed25519Key) signed(content [][]byte, sums []sum) bool {
	message := slices.Concat(content...)
	for _, s := range sums {
		if s.version == standardEd25519 && ed25519.Verify(ed25519.PublicKey(k), message, s.bytes) {
			return true
		}
	}
	return false
}

func readStandard(r *http.Request, body []byte, _ string) (*signature, error) {
	id, err := requiredField(r, "Webhook-Id")
	if err != nil {
		return nil, err
	}
	// Dots separate what is signed, so with a dot in it the name could end elsewhere.
	if strings.Contains(id, ".") {
		return nil, malformed("The field Webhook-Id has a dot.")
	}
	at, err := requiredField(r, "Webhook-Timestamp")
	if err != nil {
		return nil, err
	}
	value, err := requiredField(r, "Webhook-Signature")
	if err != nil {
		return nil, err
	}
	s := signature{contents: [][][]byte{{[]byte(id), {'.'}, []byte(at), {'.'}, body}}}
	for part := range strings.FieldsSeq(value) {
		// A version that nobody knows yet may have another form.
		version, text, _ := strings.Cut(part, ",")
		if bytes, err := decodeBase64(text); err == nil && len(bytes) > 0 {
			s.sums = append(s.sums, sum{version, bytes})
		}
	}
	if len(s.sums) == 0 {
		return nil, malformed("The field Webhook-Signature is malformed.")
	}
	if s.at, err = parseTime(at); err != nil {
		return nil, err
	}
	return &s, nil
}
