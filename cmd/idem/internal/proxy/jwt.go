package proxy

import (
	"bytes"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"example.com/idempotency"
)

// signatures are those of public keys. With a shared secret, or none, a client could sign for others.
var signatures = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// A verifier verifies tokens by the keys of a file. It looks before each whether the file has changed: a key that was
// taken out must not verify one more.
type verifier struct {
	JWT
	log *slog.Logger

	mu   sync.Mutex
	keys []jose.JSONWebKey
	text []byte // that they are from
}

func newVerifier(c JWT, log *slog.Logger) (*verifier, error) {
	if c.JWKS == "" {
		return nil, errors.New("scope: jwt:CLAIM needs the keys that verify tokens: jwt.jwks in the file, or --jwks")
	}
	v := &verifier{JWT: c, log: log}
	return v, v.read()
}

// read reads the keys if the file has other ones now. Neither its time nor its size tells: what replaces it may have kept both.
func (v *verifier) read() error {
	text, err := os.ReadFile(v.JWKS)
	if err != nil || v.keys != nil && bytes.Equal(text, v.text) {
		return err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("%s is not a JSON Web Key Set: %w", v.JWKS, err)
	}
	var keys []jose.JSONWebKey
	for n, raw := range set.Keys {
		var k jose.JSONWebKey
		err := json.Unmarshal(raw, &k)
		why := unfit(&k)
		switch {
		case err != nil:
			why = err.Error() // of a kind that nobody knows here (RFC 7517, section 5)
		case why == private:
			return fmt.Errorf("%s: key %q is not a public key", v.JWKS, k.KeyID)
		case why == "":
			keys = append(keys, k)
			continue
		}
		v.log.Warn("a key verifies no token", "file", v.JWKS, "number", n+1, "key", k.KeyID, "why", why)
	}
	if len(keys) == 0 {
		return fmt.Errorf("%s has no keys that verify tokens", v.JWKS)
	}
	v.keys, v.text = keys, text
	return nil
}

const private = "it is private"

// unfit says why a key verifies no token, or nothing if it does.
func unfit(k *jose.JSONWebKey) string {
	rsaKey, isRSA := k.Key.(*rsa.PublicKey)
	_, shared := k.Key.([]byte)
	switch {
	case shared:
		return "it is a shared secret, with which a client could sign for others"
	case !k.IsPublic():
		return private
	case k.Use != "" && k.Use != "sig":
		return "it is not for signatures"
	case k.Algorithm != "" && !slices.Contains(signatures, jose.SignatureAlgorithm(k.Algorithm)):
		return "its algorithm is none of a signature with a public key"
	case isRSA && rsaKey.N.BitLen() < 2048:
		return "RSA keys below 2048 bits can be broken"
	}
	return ""
}

// claim returns a claim of the request's token, once that is verified.
func (v *verifier) claim(r *http.Request, name string) (string, error) {
	value, _ := once(r, "Authorization")
	kind, raw, _ := strings.Cut(value, " ")
	if !strings.EqualFold(kind, "Bearer") {
		return "", fmt.Errorf("%w: no bearer token", idempotency.ErrUnauthenticated)
	}
	token, err := jwt.ParseSigned(raw, signatures)
	if err != nil {
		return "", fmt.Errorf("%w: %w", idempotency.ErrUnauthenticated, err)
	}
	var known jwt.Claims
	all := map[string]any{}
	if err := v.verify(token, &known, &all); err != nil {
		return "", err
	}
	expected := jwt.Expected{Issuer: v.Issuer, Time: time.Now()}
	if v.Audience != "" {
		expected.AnyAudience = jwt.Audience{v.Audience}
	}
	if err := known.Validate(expected); err != nil {
		return "", fmt.Errorf("%w: %w", idempotency.ErrUnauthenticated, err)
	}
	if known.Expiry == nil { // whoever finds it in a log would have the caller's answers for ever
		return "", fmt.Errorf("%w: the token has no end (exp)", idempotency.ErrUnauthenticated)
	}
	claim, _ := all[name].(string)
	if claim == "" {
		return "", fmt.Errorf("%w: the token has no claim %s that is a text", errNoScope, name)
	}
	return claim, nil
}

// verify reads the claims of a token that one of the keys has signed.
func (v *verifier) verify(token *jwt.JSONWebToken, claims ...any) error {
	v.mu.Lock()
	err := v.read()
	keys := v.keys
	v.mu.Unlock()
	if err != nil { // nobody knows which keys are good
		return fmt.Errorf("%w: %w", idempotency.ErrTryLater, err)
	}
	h := token.Headers[0]
	for _, k := range keys {
		if (h.KeyID == "" || k.KeyID == "" || k.KeyID == h.KeyID) && (k.Algorithm == "" || k.Algorithm == h.Algorithm) && token.Claims(k.Key, claims...) == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: no key of the file has signed it", idempotency.ErrUnauthenticated)
}
