// Package digest makes the digests that the library keeps in place of data that clients send:
// the fingerprints of requests, the names of records, and the keys that clients derive.
//
// # Layout
//
// A digest is the SHA-256 of a sequence of parts. Each part is written as its length, a varint
// of encoding/binary, followed by its bytes. No two sequences of parts are written alike:
// bytes cannot move from the end of one part to the start of the next. The first part is a tag
// that names the rest.
//
//	record name       "idem-key" 0x01
//	                  scope, key
//	scope             "idem-scope" 0x01
//	                  the scope
//	client's key      "idem-intent" 0x01
//	                  the parts that identify the intent
//	raw request       "idem-fp" version 'r'
//	                  method, path, query, content type, content codings, body
//	multipart request "idem-fp" version 'm'
//	                  method, path, query, content type without the boundary,
//	                  content codings, then the pieces of the body before, between
//	                  and after the occurrences of two hyphens and the boundary
//	JSON request      "idem-fp" version 'j'
//	                  method, path, query, content type, content codings, canonical body
//	fields            "idem-fp" version 'f'
//	                  method, path, query, the sorted names of the fields,
//	                  then the value of each in the body
//	caller's parts    "idem-fp" version 'p'
//	                  the parts
//
// In a fingerprint, the version replaces the first byte of the SHA-256. Records outlive
// deployments, so every change to a digest needs a new version.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

// A Sum is a digest.
type Sum = [sha256.Size]byte

// The versions of fingerprints name the function that made them.
const (
	VersionRaw    = 1
	VersionJSON   = 2
	VersionFields = 3
	VersionJob    = 4 // of the arguments of a function, made by Parts
	VersionCoded  = 5 // of what looks like a form and has a content coding, by any of the functions of requests
	VersionAsSent = 6 // of codings that readers take in different ways, likewise
)

// IsNewer reports whether only a later version of this module makes fingerprints of a version.
func IsNewer(version byte) bool { return version > VersionAsSent && version < FirstOwnVersion }

// FirstOwnVersion is the lowest version of functions that are not of this module.
const FirstOwnVersion = 0x80

// CountsParts reports whether fingerprints of a version count the parts of a request and nothing
// else. Every process can compare them.
func CountsParts(version byte) bool {
	return VersionRaw <= version && version <= VersionAsSent && version != VersionFields
}

// Key returns the digest that names the record of a scope and key.
func Key(scope, key string) Sum {
	var memory [512]byte // on the stack: a hasher of the pool would take longer
	parts := appendText(memory[:0], "idem-key\x01")
	parts = appendText(parts, scope)
	return sha256.Sum256(appendText(parts, key))
}

// Scope returns the digest that stands for a scope where its name must not be seen.
func Scope(scope string) Sum {
	h := newHasher()
	defer h.free()
	h.begin("idem-scope\x01")
	h.text(scope)
	return h.sum()
}

// Intent returns the digest that a client makes the key of an intent from.
func Intent(parts ...string) Sum {
	h := newHasher()
	defer h.free()
	h.begin("idem-intent\x01")
	for _, part := range parts {
		h.text(part)
	}
	return h.sum()
}

// Parts returns the fingerprint of parts that the caller has chosen.
func Parts(version byte, parts ...[]byte) Sum {
	h := newHasher()
	defer h.free()
	h.begin(fingerprintTag, version, 'p')
	for _, part := range parts {
		h.bytes(part)
	}
	return h.fingerprint(version)
}

// A hasher hashes a sequence of parts. It gathers short ones first, because SHA-256 works on
// 64 bytes at a time.
type hasher struct {
	sha      hash.Hash
	gathered []byte
	result   Sum
	// content, delimiter and canonical are memory for what a [Reading] and a JSON body are in
	// their canonical form.
	content, delimiter, canonical []byte
}

// hashers keeps the memory of hashers for further digests.
var hashers = sync.Pool{New: func() any { return &hasher{sha: sha256.New()} }}

func newHasher() *hasher { return hashers.Get().(*hasher) }

// free gives the hasher back to the pool, unless it has become so large that the garbage
// collector should have it.
func (h *hasher) free() {
	const maxKept = 1 << 20
	if cap(h.gathered)+cap(h.content)+cap(h.canonical) <= maxKept {
		hashers.Put(h)
	}
}

// fingerprintTag is followed by the version and the form of a fingerprint.
const fingerprintTag = "idem-fp"

// begin begins a digest with its first part, which is a tag and what follows it.
func (h *hasher) begin(tag string, more ...byte) {
	h.sha.Reset()
	h.gathered = h.gathered[:0]
	h.length(len(tag) + len(more))
	h.gathered = append(append(h.gathered, tag...), more...)
}

func (h *hasher) text(part string) { h.gathered = appendText(h.gathered, part) }

func appendText(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

func (h *hasher) bytes(part []byte) {
	const short = 64
	h.length(len(part))
	if len(part) <= short {
		h.gathered = append(h.gathered, part...)
		return
	}
	h.sha.Write(h.gathered)
	h.sha.Write(part)
	h.gathered = h.gathered[:0]
}

func (h *hasher) length(n int) {
	h.gathered = binary.AppendUvarint(h.gathered, uint64(n))
}

func (h *hasher) sum() Sum {
	h.sha.Write(h.gathered)
	h.sha.Sum(h.result[:0])
	return h.result
}

func (h *hasher) fingerprint(version byte) Sum {
	sum := h.sum()
	sum[0] = version
	return sum
}
