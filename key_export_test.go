package idempotency

// What the tests of keys and fingerprints see of the inside.
var (
	RequestKey    = requestKey
	StoreKey      = storeKey
	FingerprintOf = fingerprintOf
)
