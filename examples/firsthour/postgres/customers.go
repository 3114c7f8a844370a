package main

import (
	"crypto/sha256"
	"net/http"

	"example.com/idempotency"
)

// customers has each customer by the digest of the credentials. Yours are in a database.
var customers = map[[sha256.Size]byte]string{
	sha256.Sum256([]byte("Bearer token-of-alice")): "alice",
	sha256.Sum256([]byte("Bearer token-of-bob")):   "bob",
}

// customer is the scope function: the guard asks it whose key a request has. No other customer can use that key.
func customer(r *http.Request) (string, error) {
	if name, ok := customers[sha256.Sum256([]byte(r.Header.Get("Authorization")))]; ok {
		return name, nil
	}
	return "", idempotency.ErrUnauthenticated
}
