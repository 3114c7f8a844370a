package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// This file compares signatures. A scheme reads from a delivery what was signed and by which
// signatures, and keys tell whether one of them is theirs.

// A scheme is how a sender signs.
type scheme struct {
	// key makes a key of a secret, as the sender shows it to its users.
	key func(secret string) (key, error)
	// read finds the signature of a delivery. Its errors are refusals.
	read func(r *http.Request, body []byte, url string) (*signature, error)
}

// makeKey refuses secrets that are mistakes. Its errors do not have the secret in them.
func (s *scheme) makeKey(secret string) (key, error) {
	switch strings.TrimSpace(secret) {
	case "":
		return nil, errors.New("it is empty")
	case secret:
		return s.key(secret)
	default:
		return nil, errors.New("it has white space around it, perhaps the line break of a file")
	}
}

// A signature is what a delivery says of itself, before it is verified.
type signature struct {
	// contents are texts, each in parts. The sender has signed one of them.
	contents [][][]byte
	sums     []sum
	// at is when the sender has signed. It is zero if the sender signs no time.
	at time.Time
}

// A sum is one of the signatures of a delivery. Senders send several while they rotate.
type sum struct {
	version string
	bytes   []byte
}

// maxSums bounds the work that a forged delivery can cause.
const maxSums = 16

// A key verifies signatures.
type key interface {
	// signed reports whether one of the sums is a signature of the content by this key.
	signed(content [][]byte, sums []sum) bool
}

// An hmacKey verifies HMACs, in constant time.
type hmacKey struct {
	hash    func() hash.Hash
	version string
	secret  []byte
}

func (k *hmacKey) signed(content [][]byte, sums []sum) bool {
	mac := hmac.New(k.hash, k.secret)
	for _, part := range content {
		_, _ = mac.Write(part)
	}
	want := mac.Sum(nil)
	for _, s := range sums {
		if s.version == k.version && hmac.Equal(s.bytes, want) {
			return true
		}
	}
	return false
}

// textKey is the key of senders whose secret is a text that they use as it is.
func textKey(h func() hash.Hash) func(string) (key, error) {
	return func(secret string) (key, error) { return &hmacKey{hash: h, secret: []byte(secret)}, nil }
}

// bodyScheme is that of senders who sign the body, and nothing else, with HMAC-SHA256.
func bodyScheme(name, prefix string, decode func(string) ([]byte, error)) *scheme {
	return &scheme{
		key: textKey(sha256.New),
		read: func(r *http.Request, body []byte, _ string) (*signature, error) {
			value, err := requiredField(r, name)
			if err != nil {
				return nil, err
			}
			mac, err := decodeSum(value, prefix, decode)
			if err != nil {
				return nil, malformed("The field " + name + " is malformed.")
			}
			return &signature{contents: [][][]byte{{body}}, sums: []sum{{bytes: mac}}}, nil
		},
	}
}

var errPrefix = errors.New("webhook: signature without its prefix")

// decodeSum decodes a signature that has a prefix.
func decodeSum(value, prefix string, decode func(string) ([]byte, error)) ([]byte, error) {
	if len(value) < len(prefix) || value[:len(prefix)] != prefix {
		return nil, errPrefix
	}
	return decode(value[len(prefix):])
}

func decodeHex(s string) ([]byte, error)    { return hex.DecodeString(s) }
func decodeBase64(s string) ([]byte, error) { return base64.StdEncoding.Strict().DecodeString(s) }

// parseTime reads seconds since 1970. Its errors are refusals.
func parseTime(s string) (time.Time, error) {
	seconds, err := strconv.ParseInt(s, 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}, malformed("The time of the signature is malformed.")
	}
	return time.Unix(seconds, 0), nil
}
