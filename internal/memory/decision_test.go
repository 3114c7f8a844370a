package memory_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/internal/slab"
	"example.com/idempotency/store"
)

// The longest decisions and the longest notes have room beside an answer of each size, and are counted.
func TestDecisionsBesideAnAnswer(t *testing.T) {
	for size := 7 << 10; size < 9<<10; size += 61 {
		s, decision := memory.New(memory.Config{}), []byte(strings.Repeat("d", 600))
		var seen store.Seen
		for n := range 20 {
			c := guardtest.MemoryClaim(uint64(n + 1))
			c.Note, c.Hold = []byte(strings.Repeat("n", 64)), true
			r := guardtest.Claim(t, s, "key", c)
			require.NoError(t, s.Hold(t.Context(), "key", c.Owner, nil))
			seen = store.Seen{Owner: c.Owner, Attempt: r.Attempt, State: store.Held}
			if n < 19 {
				before := s.Bytes()
				require.NoError(t, s.Resolve(t.Context(), "key", seen, store.Settlement{Note: decision}))
				if n == 0 {
					require.Greater(t, s.Bytes(), before+400, "a decision counts")
				}
			}
		}
		answer := bytes.Repeat([]byte("a"), size)
		done := store.Completion{Answer: answer, TTL: time.Hour}
		require.NoError(t, s.Resolve(t.Context(), "key", seen, store.Settlement{Completion: &done, Note: decision}))
		for i := range answer {
			answer[i] = 'x' // it is the caller's
		}
		require.LessOrEqual(t, s.ValueSize("key"), slab.MaxValue)
		r, err := s.GetAnswer(t.Context(), "key")
		require.NoError(t, err)
		require.Equal(t, bytes.Repeat([]byte("a"), size), r.Answer)
		require.Len(t, slices.Collect(store.EachNote(r.Notes)), 16)
		decisions := slices.Collect(store.EachDecision(r.Notes))
		require.Len(t, decisions, 8)
		require.Len(t, decisions[0], 512)
		require.NoError(t, s.Forget(t.Context(), "key", r.Seen()))
		require.Zero(t, s.Bytes(), "what a record brought has gone with it")
	}
}
