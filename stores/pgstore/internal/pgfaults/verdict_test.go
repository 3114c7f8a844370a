package pgfaults

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// A database that does not answer the harness says nothing about the library. The world is missed, and
// worth another try.
func TestDatabaseThatDoesNotAnswerIsNoVerdict(t *testing.T) {
	s := newSite(t, pgtest.Shared(t), joined)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &running{end: &end{fired: true}, site: s}
	r.check(ctx, guardtest.Reply{Body: `{"id":"row"}`})
	require.Empty(t, r.wrong)
	require.False(t, r.final())
	var c tally
	c.count([]*end{r.end})
	require.Zero(t, c.worlds)
	require.Len(t, c.missed, 1)
}

// A record that another world has left in doubt is not the fault of this one.
func TestWorldsStandAlone(t *testing.T) {
	s := newSite(t, pgtest.Shared(t), joined)
	left := store.Claim{Lease: time.Minute, Retention: time.Hour, Hold: true}
	_, err := s.spared.store.Claim(t.Context(), t.Name(), left)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.spared.store.Release(context.Background(), t.Name(), left.Owner, store.Release{}) })
	e := s.run(t.Context(), world{way: "InTx", level: "read-committed"})
	require.Empty(t, e.wrong)
	require.Empty(t, e.unseen)
}
