package engine

import (
	"fmt"

	"example.com/idempotency/store"
)

// UnknownVersion is the error of a record whose fingerprint another process can compare.
func UnknownVersion(fp store.Fingerprint) error {
	return fmt.Errorf("%w: its fingerprint has version %d; name the function that makes it in WithFingerprint", store.ErrUnreadableHere, fp[0])
}
