// Package intent says what a run is about: the key that names it, whose key it is, and what is derived
// from both. Nothing here depends on what a store remembers.
package intent

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/store"
)

// MaxKeyLen is the longest value of a key, in bytes. Longer ones do not fit the index of any system
// that keys are handed on to.
const MaxKeyLen = 255

// A Key names one record: by its scope and value or, where nobody knows them, by the name of the
// record.
type Key struct{ Scope, Value, Record string }

// CheckRun refuses a key that cannot be run with.
func (k Key) CheckRun() error {
	switch {
	case k.Record != "":
		return errors.New("idempotency: a run needs the Scope and the Value of its Key, and not the name of a Record")
	case k.Scope == "":
		return errors.New("idempotency: Key without a Scope: say whose key it is, or Shared")
	case k.Value == "" || len(k.Value) > MaxKeyLen:
		return fmt.Errorf("idempotency: the Value of a Key must have 1 to %d bytes, and this one has %d", MaxKeyLen, len(k.Value))
	}
	return nil
}

// CheckFind refuses a key that a record cannot be found by.
func (k Key) CheckFind() error {
	if k.Record == "" {
		return k.CheckRun()
	}
	if k.Scope != "" || k.Value != "" {
		return errors.New("idempotency: Key with a Record and with a Scope or a Value: give the one or the others")
	}
	// A decoder passes over line breaks.
	if sum, err := recordName.DecodeString(k.Record); err != nil || len(sum) != sha256.Size || len(k.Record) != recordNameLen {
		return fmt.Errorf("idempotency: %.80q is not the name of a record, which has %d characters of base64url", k.Record, recordNameLen)
	}
	return nil
}

// recordName is the encoding of the names of records. It is strict: each name has one form.
var recordName = base64.RawURLEncoding.Strict()

const recordNameLen = 43

// Name returns the name under which a store keeps the record: base64url of a digest of scope and
// value. It has the same length for every key, reveals nothing of it, and means nothing to any backend.
func (k Key) Name() string {
	if k.Record != "" {
		return k.Record
	}
	sum := digest.Key(k.Scope, k.Value)
	var name [recordNameLen]byte
	recordName.Encode(name[:], sum[:])
	return string(name[:])
}

// ScopeID returns what the log has of a scope, which can be a person's name: the beginning of its digest. It is empty for
// [store.Shared], and if the scope is not known.
func ScopeID(scope string) string {
	if scope == "" || scope == store.Shared {
		return ""
	}
	sum := digest.Scope(scope)
	return hex.EncodeToString(sum[:8])
}

// Tenant returns a digest of the scope, which tells a store whose record it is; see store.Claim.
func (k Key) Tenant() uint64 {
	if k.Scope == store.Shared {
		return 0
	}
	sum := digest.Scope(k.Scope)
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}
