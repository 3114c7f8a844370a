package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
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

	mu   sync.Mutex
	keys []jose.JSONWebKey
	of   os.FileInfo // the file that they are from
}

func newVerifier(c JWT) (*verifier, error) {
	if c.JWKS == "" {
		return nil, errors.New("scope: jwt:CLAIM needs the keys that verify tokens: jwt.jwks in the file, or --jwks")
	}
	v := &verifier{JWT: c}
	return v, v.read()
}

// read reads the file if it is another one than that of the keys.
func (v *verifier) read() error {
	info, err := os.Stat(v.JWKS)
	if err != nil || v.of != nil && os.SameFile(info, v.of) && info.ModTime().Equal(v.of.ModTime()) && info.Size() == v.of.Size() {
		return err
	}
	text, err := os.ReadFile(v.JWKS)
	if err != nil {
		return err
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(text, &set); err != nil {
		return fmt.Errorf("%s is not a JSON Web Key Set: %w", v.JWKS, err)
	}
	for _, k := range set.Keys {
		if !k.IsPublic() {
			return fmt.Errorf("%s: key %q is not a public key", v.JWKS, k.KeyID)
		}
	}
	if len(set.Keys) == 0 {
		return fmt.Errorf("%s has no keys", v.JWKS)
	}
	v.keys, v.of = set.Keys, info
	return nil
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
	id := token.Headers[0].KeyID
	for _, k := range keys {
		if (id == "" || k.KeyID == "" || k.KeyID == id) && token.Claims(k.Key, claims...) == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: no key of the file has signed it", idempotency.ErrUnauthenticated)
}
