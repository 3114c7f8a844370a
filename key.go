package idempotency

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/keyheader"
)

// This file says what names a record: the key, whose key it is, and how both are read off a
// request.

// A Key names one record: a client's key and whose it is. [Do], [Guard.Lookup],
// [Guard.Resolve] and [Guard.Forget] refuse a Key without a scope or a value, but the last three
// also take one that has only Record.
type Key struct {
	// Scope is what the guard's [ScopeFunc] returns, or [Shared]. For [Do], choose a scope
	// that no ScopeFunc returns, "queue:orders" for example: a message and a request are
	// never the same payload, so if they had a key in common the later one would be refused.
	Scope string
	// Value is the key as the client sent it, decoded: abc for both abc and "abc". For
	// Do it is whatever names the work, a message id for example. It has 1 to 255 bytes
	// of any value.
	Value string
	// Record is the name of the record in the store, from an [event.Event] or a listing. It stands for
	// Scope and Value where somebody does not know them, and is empty in any other Key.
	Record string
}

// maxKeyLen is the longest key, in bytes. Longer ones do not fit the index of any system
// that keys are handed on to.
const maxKeyLen = 255

// check refuses a key that cannot be run with.
func (k Key) check() error {
	switch {
	case k.Record != "":
		return errors.New("idempotency: a run needs the Scope and the Value of its Key, and not the name of a Record")
	case k.Scope == "":
		return errors.New("idempotency: Key without a Scope: say whose key it is, or Shared")
	case k.Value == "" || len(k.Value) > maxKeyLen:
		return fmt.Errorf("idempotency: the Value of a Key must have 1 to %d bytes, and this one has %d", maxKeyLen, len(k.Value))
	}
	return nil
}

// find refuses a key that a record cannot be found by.
func (k Key) find() error {
	if k.Record == "" {
		return k.check()
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

// storeKey returns the name under which a [Store] keeps the record: base64url of a digest
// of scope and value. It has the same length for every key, reveals nothing of it, and
// means nothing to any backend.
func (k Key) storeKey() string {
	if k.Record != "" {
		return k.Record
	}
	sum := digest.Key(k.Scope, k.Value)
	var name [recordNameLen]byte
	recordName.Encode(name[:], sum[:])
	return string(name[:])
}

// tenant returns a digest of the scope, which tells a store whose record it is; see
// [store.Claim.Tenant].
func (k Key) tenant() uint64 {
	if k.Scope == Shared {
		return 0
	}
	sum := digest.Scope(k.Scope)
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// keyFromHeader returns the key of a request from the values of its field, and whether the request
// has the field at all. The text of an error is a sentence for the client, in which nothing of the
// request appears.
//
// Two fields are an error even if they are equal: a client must not send them, so
// something on the way has added one, and it is not known which.
func keyFromHeader(values []string, strict bool) (key string, present bool, err error) {
	switch len(values) {
	case 0:
		return "", false, nil
	case 1:
		key, err = keyheader.Parse(values[0], strict)
		return key, true, err
	default:
		return "", true, keyheader.ErrRepeated
	}
}

// A ScopeFunc returns whose key a request carries: the tenant, account or principal
// that was authenticated before the guard ran. Keys of different scopes never meet,
// so one caller cannot read another's answers or block another's keys.
//
// It sees only the *http.Request. A framework that keeps the authenticated principal in a
// context of its own must put it into the request's context before the guard runs.
//
// An error, or an empty scope, refuses the request with 403 before anything is read
// or claimed. An error that wraps [ErrUnauthenticated] refuses it with 401, and one that
// wraps [ErrTryLater] with 503. The client does not see the text of the error, which is in
// the log and in Err of the [event.Event]. A 401 needs the field WWW-Authenticate: a handler outside
// the guard, or the function of [WithErrorWriter], sets it.
//
// Take the scope from what authentication has established, typically a
// context value, and never from a header that the client fills in freely. The guard calls
// the function once for each protected request that carries a key.
type ScopeFunc func(*http.Request) (string, error)

// Shared is the scope that [SharedScope] returns, for use in a [Key]. A guard refuses it from
// any other ScopeFunc: a caller could have chosen it as a user name.
const Shared = "\x00shared"

// SharedScope is the [ScopeFunc] that puts the keys of all callers into one
// namespace. It is right only where every caller may see every other caller's
// answers: a service with a single client, or webhooks of a single provider.
func SharedScope(*http.Request) (string, error) { return Shared, nil }

var (
	errEmptyScope  = errors.New("idempotency: the scope function returned an empty scope")
	errSharedScope = errors.New("idempotency: a scope function other than SharedScope returned Shared")
)

// isSharedScope reports whether f is SharedScope itself.
func isSharedScope(f ScopeFunc) bool {
	return reflect.ValueOf(f).Pointer() == reflect.ValueOf(SharedScope).Pointer()
}

// scopeOf calls the guard's ScopeFunc. It refuses an empty scope, because an "anonymous"
// namespace would be shared by all callers that fail to authenticate, and the shared one from
// a function that was not chosen for it.
func (c *core) scopeOf(r *http.Request) (string, error) {
	scope, err := c.scope(r)
	switch {
	case err != nil:
		return "", err
	case scope == "":
		return "", errEmptyScope
	case scope == Shared && !c.shared:
		return "", errSharedScope
	}
	return scope, nil
}
