package idempotency

import (
	"encoding/base64"
	"net/http"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/keyheader"
)

// requestKey returns the key of a request, and whether the request has the field at
// all. The name is in canonical form. An error is a sentence for the client, in which
// nothing of the request appears.
//
// Two fields are an error even if they are equal: clients must not send them, so
// something on the way has added one, and which of the two is the client's is not
// known.
func requestKey(h http.Header, name string, strict bool) (key string, present bool, err error) {
	switch values := h[name]; len(values) {
	case 0:
		return "", false, nil
	case 1:
		key, err = keyheader.Parse(values[0], strict)
		return key, true, err
	default:
		return "", true, keyheader.ErrRepeated
	}
}

// storeKey returns the name under which a [Store] keeps the record of a scope and key:
// base64url of a digest of both. It has the same length for all, reveals neither, and
// contains nothing that could mean something to a backend.
func storeKey(scope, key string) string {
	sum := digest.Key(scope, key)
	var name [43]byte
	base64.RawURLEncoding.Encode(name[:], sum[:])
	return string(name[:])
}
