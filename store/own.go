package store

import (
	"slices"
	"strings"
)

// ownMark begins the name of a record of the library itself. No key has it: their names are base64url.
const ownMark = "."

// IsOwn reports whether a record of that name is one of the library itself, and no key's: the mark of the birth of a
// store, for example. Its name is as long as those of keys, and begins with a dot. To a store it is a record like any
// other. Nobody waits for it, and no client sees it.
func IsOwn(name string) bool { return strings.HasPrefix(name, ownMark) }

// Shared is the scope of the keys of all callers at once, which idempotency.SharedScope returns. A guard refuses it from
// any other ScopeFunc: a caller could have chosen it as a user name.
const Shared = "\x00shared"

// OfKeys returns the page without the records of the library itself. Whoever counts or shows records wants that.
func (p Page) OfKeys() Page {
	own := func(e Entry) bool { return IsOwn(e.Key) }
	if slices.ContainsFunc(p.Entries, own) {
		p.Entries = slices.DeleteFunc(slices.Clone(p.Entries), own) // the store's are not to be written to
	}
	return p
}
