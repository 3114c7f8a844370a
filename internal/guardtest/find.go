package guardtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// RequireFound fails the test unless these records have the tag.
func RequireFound(t testing.TB, s store.Finder, tag store.Tag, want ...string) {
	t.Helper()
	page, err := s.Find(t.Context(), tag, store.Query{})
	require.NoError(t, err)
	var got []string
	for _, e := range page.Entries {
		got = append(got, e.Key)
	}
	require.Equal(t, want, got)
}
