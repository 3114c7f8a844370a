package cursor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// No two queries that find other records have the same text.
func TestQuery(t *testing.T) {
	seen := map[string]store.Query{}
	for _, q := range []store.Query{
		{},
		{Holding: true},
		{States: []store.State{store.Held}},
		{States: []store.State{store.Held, store.Claimed}},
		{States: []store.State{store.Claimed}},
		{Label: "a"},
		{Label: `a" true`},
		{Label: "[1]"},
		{Label: "a", Holding: true},
	} {
		text := Query(&q)
		require.NotContains(t, seen, text, "%+v", q)
		seen[text] = q
		q.Limit, q.OlderThan, q.Cursor = 7, time.Hour, "cursor"
		require.Equal(t, text, Query(&q))
	}
}
