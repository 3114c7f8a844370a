package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// Whoever counts records counts those of keys, and writes to no slice of the store.
func TestOfKeysLeavesOutTheLibrarysOwn(t *testing.T) {
	entries := []store.Entry{{Key: ".birth"}, {Key: "A"}, {Key: "."}, {Key: "-B"}, {Key: "_C"}}
	page := store.Page{Entries: entries, Next: "on"}
	require.Equal(t, store.Page{Entries: []store.Entry{{Key: "A"}, {Key: "-B"}, {Key: "_C"}}, Next: "on"}, page.OfKeys())
	require.Equal(t, ".birth", entries[0].Key)
	require.Equal(t, "_C", entries[4].Key)
}
