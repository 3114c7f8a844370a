package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"strings"

	"example.com/idempotency"
)

// This file says whose a key is. A proxy without an answer to that refuses the request: keys of several
// callers in one scope would show one of them the answers of another.

var (
	errNoAuthorization = fmt.Errorf("%w: the request has not one Authorization field; say --scope if callers are known by something else", idempotency.ErrUnauthenticated)
	errNoScope         = errors.New("the field of the scope is not there once, with a value")
)

// sharedByAll is what is said of the scope shared.
const sharedByAll = "all callers share one set of keys: whoever sends the request of another, with its key, gets the other's answer"

// scopeOf returns the function that a word names.
func scopeOf(word string, jwt JWT, log *slog.Logger) (idempotency.ScopeFunc, error) {
	kind, name, named := strings.Cut(word, ":")
	switch {
	case word == "authorization":
		return authorization, nil
	case word == "shared":
		return idempotency.SharedScope, nil
	case kind == "header" && named && name != "":
		return header(scopeField(word)), nil
	case kind == "jwt" && named && name != "":
		v, err := newVerifier(jwt, log)
		if err != nil {
			return nil, err
		}
		return func(r *http.Request) (string, error) { return v.claim(r, name) }, nil
	default:
		return nil, fmt.Errorf("scope: %q must be authorization, header:NAME, jwt:CLAIM or shared", word)
	}
}

// scopeField returns the field that a scope is known by, or "" if it is shared.
func scopeField(word string) string {
	if name, ok := strings.CutPrefix(word, "header:"); ok {
		return textproto.CanonicalMIMEHeaderKey(name)
	}
	if word == "shared" {
		return ""
	}
	return "Authorization"
}

// authorization makes a digest of the credentials, so that they stand in no record and no log.
func authorization(r *http.Request) (string, error) {
	value, ok := once(r, "Authorization")
	if !ok {
		return "", errNoAuthorization
	}
	sum := sha256.Sum256([]byte(value))
	return "authorization:" + hex.EncodeToString(sum[:]), nil
}

func header(name string) idempotency.ScopeFunc {
	return func(r *http.Request) (string, error) {
		value, ok := once(r, name)
		if !ok {
			return "", fmt.Errorf("%w: %s", errNoScope, name)
		}
		return value, nil
	}
}

// once returns the value of a field that a request has once. Which of two values the service goes by, nobody
// can tell.
func once(r *http.Request, name string) (string, bool) {
	values := r.Header[name]
	if len(values) != 1 || values[0] == "" {
		return "", false
	}
	return values[0], true
}
