package redisproto

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// Tags are read as they were written, each once. What scripts append to them is none.
func TestStoredTags(t *testing.T) {
	a, b := store.Tag{1}, store.Tag{2, 15: 3}
	stored := string(joinTags([]store.Tag{a, b, a}))
	require.Len(t, stored, 32)
	require.Equal(t, []store.Tag{a, b}, splitTags(stored))
	require.Equal(t, []store.Tag{a, b}, splitTags(stored+"\x00"))
	require.Nil(t, splitTags(""))
}

// A reply that is not what the script returns is no result.
func TestRepliesAboutTags(t *testing.T) {
	tag := store.Tag{1}
	r, err := ParseResult([]any{int64(2), int64(1500), string(tag[:])})
	require.NoError(t, err)
	require.Equal(t, Result{2, 1500 * time.Millisecond, []store.Tag{tag}}, r)
	r, err = ParseResult(int64(-4))
	require.NoError(t, err)
	require.Equal(t, Result{N: Refused}, r)
	for _, reply := range []any{nil, "OK", []any{}, []any{int64(1), int64(2)}, []any{int64(1), "2", ""}, []any{int64(1), int64(2), int64(3)}, []any{"1", int64(2), ""}} {
		_, err := ParseResult(reply)
		require.Error(t, err, "%v", reply)
	}

	entries, next, err := ParseScan([]any{"17", []any{"key", "1764300000000"}})
	require.NoError(t, err)
	require.Equal(t, []Tagged{{"key", 1764300000000}}, entries)
	require.EqualValues(t, 17, next)
	for _, reply := range [][]any{nil, {"x", []any{}}, {"1", "2"}, {"1", []any{"key", "soon"}}, {int64(1), []any{}}} {
		_, _, err := ParseScan(reply)
		require.Error(t, err, "%v", reply)
	}
	require.Equal(t, Result{Kept: time.Second, Tags: []store.Tag{tag}}, ParseTags([]any{int64(1000), string(tag[:])}))
	require.Empty(t, ParseTags([]any{int64(-2), nil}).Tags)
	require.Empty(t, ParseTags(nil))
}
