package intent

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"example.com/idempotency/store"
)

// An Intent is what a client wants done: a digest of scope, key and fingerprint. It is computed and
// never stored, so it survives whatever a store forgets.
type Intent [sha256.Size]byte

// A Derivation is what intents are derived from besides the key and the fingerprint. The zero Derivation is nothing.
type Derivation struct {
	Namespace string
	Secret    []byte // nil for none
	// Digest tells the derivation from others, and is zero for nothing. [NewDerivation] sets it.
	Digest [4]byte
}

// NewDerivation returns a derivation. The secret is not copied, and may be nil.
func NewDerivation(namespace string, secret []byte) Derivation {
	d := Derivation{Namespace: namespace, Secret: secret}
	if namespace != "" || secret != nil {
		sum := d.sum([]byte("idempotency derivation\x00" + namespace))
		d.Digest = [4]byte(sum[:])
	}
	return d
}

// shortIntent is the memory on the stack in which intents are put together. The longest key and
// a usual scope fit in.
const shortIntent = 512

// Of returns the intent of a key that is bound to a fingerprint.
func (d *Derivation) Of(k Key, fp store.Fingerprint) Intent {
	b := append(make([]byte, 0, shortIntent), "idempotency intent\x01"...)
	for _, part := range []string{d.Namespace, k.Scope, k.Value} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	b = append(b, fp[:]...)
	return d.sum(b)
}

// sum returns a digest that nobody can make without the secret, if there is one.
func (d *Derivation) sum(b []byte) [sha256.Size]byte {
	if d.Secret == nil {
		return sha256.Sum256(b)
	}
	mac := hmac.New(sha256.New, d.Secret)
	mac.Write(bytes.Clone(b)) // b itself stays off the heap
	return [sha256.Size]byte(mac.Sum(nil))
}

// What records are found by besides their keys.
const (
	ByReference = "reference"
	ByScope     = "scope"
)

// Tag returns what records are found by that have a reference or a scope. With a secret, nobody can guess what a tag is
// of who only reads the store.
func (d *Derivation) Tag(by, value string) store.Tag {
	b := append(make([]byte, 0, shortIntent), "idempotency tag "...)
	sum := d.sum(append(append(append(b, by...), 0), value...))
	return store.Tag(sum[:len(store.Tag{})])
}

// FindsLike reports whether two derivations make the same tags.
func (d *Derivation) FindsLike(other *Derivation) bool {
	return (d.Secret == nil) == (other.Secret == nil) && bytes.Equal(d.Secret, other.Secret)
}

// ID returns the name of the intent, in 32 hexadecimal digits. That of the zero Intent, which is none, is empty.
func (i Intent) ID() string {
	if i == (Intent{}) {
		return ""
	}
	return i.digest("operation id", "")
}

// DeriveKey returns a key for a downstream service, in 32 hexadecimal digits.
func (i Intent) DeriveKey(purpose string) string { return i.digest("derived key", purpose) }

func (i Intent) digest(kind, purpose string) string {
	b := append(make([]byte, 0, shortIntent), "idempotency "...)
	b = append(append(append(b, kind...), 0), i[:]...)
	sum := sha256.Sum256(append(b, purpose...))
	var digits [32]byte
	hex.Encode(digits[:], sum[:16])
	return string(digits[:])
}
