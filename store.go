package idempotency

import "example.com/idempotency/store"

// A Store keeps one record for each key and decides, atomically, who may run. [NewMemoryStore] and
// [NewRedisStore] return one. Package store is the contract for those who write another.
type Store = store.Store

// A Fingerprint is the digest of the request that a key is bound to. Make one with [NewFingerprint].
type Fingerprint = store.Fingerprint
