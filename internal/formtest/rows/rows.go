// Package rows checks the stored forms of stores in SQL.
package rows

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/store"
)

// CheckSchema is [formtest.Check] for the form of a table of a store in SQL. Comments may change.
func CheckSchema(t *testing.T, form string, version int, schema string) {
	t.Helper()
	formtest.Check(t, form, version, formtest.Case{
		Name: "schema", Text: true,
		Encode: func() []byte {
			code := regexp.MustCompile(`(?m)[ \t]*--.*$`).ReplaceAll([]byte(schema), nil)
			return regexp.MustCompile(`(?m)^\n`).ReplaceAll(code, nil)
		},
	})
}

// An Inspected is a store whose rows can be looked at.
type Inspected interface {
	store.Store
	store.Inspector
	store.Lister
}

// Check checks that no call of a store touches a row that is of another version. update changes columns of
// the row of a key by an expression of SQL, and row returns all columns of it.
func Check(t *testing.T, s Inspected, claim store.Claim, update func(key, set string) error, row func(key string) string) {
	t.Helper()
	for name, change := range map[string]string{
		"version": "marks = marks | (1 << 8)", "mark": "marks = marks | 32", "state": "state = 'archived'",
	} {
		key := "key-" + name
		_, err := s.Claim(t.Context(), key, claim)
		require.NoError(t, err)
		require.NoError(t, update(key, change))
		before := row(key)

		other := claim
		other.Owner[0]++
		_, err = s.Claim(t.Context(), key, other)
		require.ErrorIs(t, err, store.ErrUnreadableHere, name)
		_, err = s.Get(t.Context(), key)
		require.ErrorIs(t, err, store.ErrUnreadableHere, name)
		_, err = s.GetAnswer(t.Context(), key)
		require.ErrorIs(t, err, store.ErrUnreadableHere, name)
		for _, state := range []store.State{store.Claimed, store.Held, store.Corrupt} {
			seen := store.Seen{Owner: claim.Owner, Attempt: 1, State: state}
			require.ErrorIs(t, s.Resolve(t.Context(), key, seen, store.Settlement{}), store.ErrUnreadableHere, name)
			require.ErrorIs(t, s.Forget(t.Context(), key, seen), store.ErrUnreadableHere, name)
		}
		page, err := s.List(t.Context(), store.Query{})
		require.NoError(t, err)
		require.Empty(t, page.Entries, name)
		require.Equal(t, before, row(key), name)
	}
}
