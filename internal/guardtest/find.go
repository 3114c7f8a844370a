package guardtest

import (
	"testing"
	"time"

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

// RequireTagsOfCommits checks that a claim that is a transaction leaves its tags with its record, and otherwise none. The
// store keeps nothing of the caller's memory.
func RequireTagsOfCommits(t testing.TB, s interface {
	store.Store
	store.Inspector
	store.Finder
}, newClaim func() store.Claim,
) {
	t.Helper()
	for key, end := range map[string]func(key string, o store.Owner) error{
		"completed": func(key string, o store.Owner) error {
			return s.Complete(t.Context(), key, o, store.Completion{Answer: []byte("answer"), TTL: time.Hour})
		},
		"renewed": func(key string, o store.Owner) error { return s.Renew(t.Context(), key, o) },
		"undone": func(key string, o store.Owner) error {
			return s.Release(t.Context(), key, o, store.Release{Undone: true})
		},
	} {
		c := newClaim()
		c.Tags = []store.Tag{{1}, {1}}
		require.True(t, Claim(t, s, key, c).MayBeLost)
		_, err := s.Get(t.Context(), key)
		require.ErrorIs(t, err, store.ErrNotFound)
		c.Tags[0] = store.Tag{2}
		require.NoError(t, end(key, c.Owner))
	}
	RequireFound(t, s, store.Tag{1}, "completed", "renewed")
	RequireFound(t, s, store.Tag{2})
}
