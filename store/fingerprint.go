package store

// A Fingerprint is the digest of the request that a key is bound to. Its first byte names the
// algorithm and its version. To a [Store] it is 32 opaque bytes.
type Fingerprint [32]byte
