package intent

import (
	"crypto/sha256"
	"encoding/base64"
)

// This file names the records of the library itself: see store.IsOwn. Their names are as long as those of keys, for
// stores that have room for no more, and say what they are to a person who looks into the store.

// BirthMark is the name of the record that marks the birth of a store.
var BirthMark = own(".birth.", "")

// own returns a name that begins with what it is, and goes on with a digest of what it is about.
func own(kind, about string) string {
	sum := sha256.Sum256([]byte("idempotency record" + kind + about))
	return (kind + base64.RawURLEncoding.EncodeToString(sum[:]))[:recordNameLen]
}

// Tombstone returns the name of what is left of a record that was forgotten.
func Tombstone(record string) string { return own(".forgotten.", record) }
