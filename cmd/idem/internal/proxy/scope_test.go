package proxy

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// Whose a key is, is known or refused. Nobody shares a scope because nothing is known of them.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word, field, value string
		more               string // a second value
		want               string
		unauthenticated    bool
	}{
		{"authorization", "Authorization", "Bearer alice", "", "digest", false},
		{"authorization", "Authorization", "", "", "", true},
		{"authorization", "X-Other", "Bearer alice", "", "", true},
		{"authorization", "Authorization", "Bearer alice", "Bearer bob", "", true},
		{"header:x-tenant", "X-Tenant", "acme", "", "acme", false},
		{"header:x-tenant", "X-Tenant", "", "", "", false},
		{"header:x-tenant", "X-Other", "acme", "", "", false},
		{"header:x-tenant", "X-Tenant", "acme", "evil", "", false},
	} {
		scope, err := scopeOf(c.word, JWT{}, unlogged.Logger)
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r.Header.Add(c.field, c.value)
		if c.more != "" {
			r.Header.Add(c.field, c.more)
		}
		got, err := scope(r)
		if c.want == "" {
			require.Error(t, err)
			require.Empty(t, got)
			require.Equal(t, c.unauthenticated, errors.Is(err, idempotency.ErrUnauthenticated))
			continue
		}
		require.NoError(t, err)
		if c.word == "authorization" {
			require.Regexp(t, "^authorization:[0-9a-f]{64}$", got)
			continue
		}
		require.Equal(t, c.want, got)
	}
}

// tokens signs with keys that a file has, or not.
type tokens struct {
	t    *testing.T
	file string
}

func newKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return jose.JSONWebKey{Key: private, KeyID: id, Algorithm: string(jose.ES256)}
}

// publish writes the file with keys. All such files are of one moment.
func (k tokens) publish(keys ...jose.JSONWebKey) {
	k.t.Helper()
	at := time.Unix(1, 0)
	var set jose.JSONWebKeySet
	for _, key := range keys {
		if !key.IsPublic() && key.Valid() {
			key = key.Public()
		}
		set.Keys = append(set.Keys, key)
	}
	text, err := json.Marshal(set)
	require.NoError(k.t, err)
	require.NoError(k.t, os.WriteFile(k.file, text, 0o600))
	require.NoError(k.t, os.Chtimes(k.file, at, at))
}

func (k tokens) sign(key any, alg jose.SignatureAlgorithm, claims map[string]any) string {
	k.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	require.NoError(k.t, err)
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(k.t, err)
	return text
}

// A claim counts only of a token that a key of the file has signed, for us, and that has not ended.
func TestTokenIsVerified(t *testing.T) {
	t.Parallel()
	k := tokens{t, filepath.Join(t.TempDir(), "keys.json")}
	ours, other := newKey(t, "1"), newKey(t, "1")
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	began := time.Now()
	k.publish(ours, jose.JSONWebKey{Key: edwards.Public(), KeyID: "2"})
	scope, err := scopeOf("jwt:sub", JWT{JWKS: k.file, Issuer: "https://issuer", Audience: "shop"}, unlogged.Logger)
	require.NoError(t, err)
	claims := func(change map[string]any) map[string]any {
		all := map[string]any{"sub": "alice", "iss": "https://issuer", "aud": []string{"shop", "x"}, "exp": began.Add(time.Hour).Unix()}
		maps.Copy(all, change)
		return all
	}
	ask := func(token string) (string, error) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		return scope(r)
	}
	good := k.sign(ours, jose.ES256, claims(nil))
	for name, token := range map[string]string{
		"a key of the file": good, "a key without a name": k.sign(ours.Key, jose.ES256, claims(nil)), "another kind of key": k.sign(edwards, jose.EdDSA, claims(nil)),
	} {
		got, err := ask(token)
		require.NoError(t, err, name)
		require.Equal(t, "alice", got)
	}
	for name, token := range map[string]string{
		"none":                 "",
		"nonsense":             "a.b.c",
		"another key":          k.sign(other, jose.ES256, claims(nil)),
		"a shared secret":      k.sign([]byte("a secret that is 32 bytes long!!"), jose.HS256, claims(nil)),
		"no signature":         "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.",
		"an altered signature": good[:len(good)-4] + "AAAA",
		"the end":              k.sign(ours, jose.ES256, claims(map[string]any{"exp": began.Add(-time.Hour).Unix()})),
		"no end":               k.sign(ours, jose.ES256, claims(map[string]any{"exp": nil})),
		"too early":            k.sign(ours, jose.ES256, claims(map[string]any{"nbf": began.Add(time.Hour).Unix()})),
		"another issuer":       k.sign(ours, jose.ES256, claims(map[string]any{"iss": "https://evil"})),
		"another audience":     k.sign(ours, jose.ES256, claims(map[string]any{"aud": "bank"})),
		"no subject":           k.sign(ours, jose.ES256, claims(map[string]any{"sub": ""})),
		"a number":             k.sign(ours, jose.ES256, claims(map[string]any{"sub": 7})),
	} {
		got, err := ask(token)
		require.Error(t, err, name)
		require.Empty(t, got, name)
	}

	k.publish(ours)
	_, err = ask(good)
	require.NoError(t, err)
	k.publish(other)
	_, err = ask(good)
	require.ErrorIs(t, err, idempotency.ErrUnauthenticated, "its key is gone")
	got, err := ask(k.sign(other, jose.ES256, claims(nil)))
	require.NoError(t, err)
	require.Equal(t, "alice", got)
	require.NoError(t, os.WriteFile(k.file, []byte("half a fi"), 0o600))
	_, err = ask(k.sign(other, jose.ES256, claims(nil)))
	require.ErrorIs(t, err, idempotency.ErrTryLater, "nobody knows which keys are good")
}

func TestKeysThatAreNoPublicKeys(t *testing.T) {
	t.Parallel()
	k := tokens{t, filepath.Join(t.TempDir(), "keys.json")}
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{newKey(t, "1")}})
	require.NoError(t, err)
	for name, text := range map[string]string{
		"private": string(private), "nothing": "", "no keys": `{"keys":[]}`, "a secret": `{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"1"}]}`,
	} {
		require.NoError(t, os.WriteFile(k.file, []byte(text), 0o600))
		_, err := scopeOf("jwt:sub", JWT{JWKS: k.file}, unlogged.Logger)
		require.Error(t, err, name)
	}
	_, err = scopeOf("jwt:sub", JWT{JWKS: k.file + ".none"}, unlogged.Logger)
	require.Error(t, err)
	require.NotErrorIs(t, err, idempotency.ErrUnauthenticated)
}

// A key that cannot verify tokens here leaves the others of its file alone, and is told of.
func TestKeysThatDoNotFit(t *testing.T) {
	t.Parallel()
	good, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	public := func(k jose.JSONWebKey) string {
		text, err := k.MarshalJSON()
		require.NoError(t, err)
		return string(text)
	}
	second := newKey(t, "2")
	other := public(second.Public())
	named := jose.JSONWebKey{Key: good.Public(), KeyID: "good", Algorithm: "RS256", Use: "sig"}
	claims := map[string]any{"sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	k := tokens{t, filepath.Join(t.TempDir(), "keys.json")}
	for name, c := range map[string]struct {
		keys   []string // of the file
		key    any      // that signs
		alg    jose.SignatureAlgorithm
		told   string
		verify bool
	}{
		"one":                 {[]string{public(named)}, good, jose.RS256, "", true},
		"an unknown kind":     {[]string{`{"kty":"AKP","kid":"new"}`, public(named)}, good, jose.RS256, "unsupported key type", true},
		"a secret":            {[]string{`{"kty":"oct","k":"c2VjcmV0","kid":"1"}`, public(named)}, good, jose.RS256, "a shared secret", true},
		"another algorithm":   {[]string{public(named)}, good, jose.PS256, "", false},
		"any algorithm":       {[]string{public(jose.JSONWebKey{Key: good.Public()})}, good, jose.PS256, "", true},
		"for encryption":      {[]string{public(jose.JSONWebKey{Key: good.Public(), Use: "enc"}), other}, good, jose.RS256, "not for signatures", false},
		"encrypts by its alg": {[]string{public(jose.JSONWebKey{Key: good.Public(), Algorithm: "RSA-OAEP"}), other}, good, jose.RS256, "its algorithm", false},
		"too weak":            {[]string{public(jose.JSONWebKey{Key: weak.Public()}), public(named)}, weak, jose.RS256, "below 2048", false},
	} {
		require.NoError(t, os.WriteFile(k.file, []byte(`{"keys":[`+strings.Join(c.keys, ",")+`]}`), 0o600))
		log := new(guardtest.LockedBuffer)
		scope, err := scopeOf("jwt:sub", JWT{JWKS: k.file}, slog.New(slog.NewTextHandler(log, nil)))
		require.NoError(t, err, name)
		require.Contains(t, log.String(), c.told, name)
		require.Equal(t, c.told == "", log.String() == "", name)
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
		r.Header.Set("Authorization", "Bearer "+k.sign(c.key, c.alg, claims))
		got, err := scope(r)
		if c.verify {
			require.NoError(t, err, name)
			require.Equal(t, "alice", got)
			continue
		}
		require.ErrorIs(t, err, idempotency.ErrUnauthenticated, name)
	}
}
