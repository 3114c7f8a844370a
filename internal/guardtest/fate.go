package guardtest

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A Fate is what a request meets that is sent again after a run has ended.
type Fate string

// The fates of a request that is sent again.
const (
	// Replays: the answer is recorded, and is told again.
	Replays Fate = "replays"
	// RunsNext: the handler runs, as the next attempt.
	RunsNext Fate = "runs next"
	// IsHeld: nobody knows the outcome, and the request is refused.
	IsHeld Fate = "is held"
)

// RequireFate sends the request again and checks its fate.
func RequireFate(t *testing.T, s *Server, h *Counter, c Call, want Fate) {
	t.Helper()
	before := h.Runs.Load()
	got, err := s.Try(t.Context(), c)
	switch want {
	case Replays:
		require.NoError(t, err)
		require.True(t, got.Replayed(), "status %d, body %s", got.Status, got.Body)
		require.Equal(t, before, h.Runs.Load())
	case RunsNext:
		require.Equal(t, before+1, h.Runs.Load())
	case IsHeld:
		require.NoError(t, err)
		RequireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
		require.Equal(t, before, h.Runs.Load())
	}
}

// OnEachRecovery runs a test under each recovery policy, with the fate of an unknown outcome.
func OnEachRecovery(t *testing.T, f func(t *testing.T, recovery idempotency.Option, unknown Fate)) {
	t.Helper()
	for recovery, unknown := range map[idempotency.Recovery]Fate{idempotency.Rerun: RunsNext, idempotency.Hold: IsHeld} {
		t.Run(recovery.String(), func(t *testing.T) { f(t, idempotency.WithRecovery(recovery), unknown) })
	}
}

// OnEachRecoveryInBubble is [OnEachRecovery] with a bubble of [synctest] for each policy.
func OnEachRecoveryInBubble(t *testing.T, f func(t *testing.T, recovery idempotency.Option, unknown Fate)) {
	t.Helper()
	OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown Fate) {
		synctest.Test(t, func(t *testing.T) { f(t, recovery, unknown) })
	})
}

// HeldKey is the key of a [Call] whose Key is "k".
var HeldKey = idempotency.Key{Scope: "acme", Value: "k"}

// HeldBy is what an operator has seen of a record that an owner holds.
func HeldBy(o store.Owner, attempt int) store.Seen {
	return store.Seen{Owner: o, Attempt: attempt, State: store.Held}
}

// Seen is what an operator who looks sees of HeldKey.
func Seen(t testing.TB, g *idempotency.Guard) store.Seen {
	t.Helper()
	info, err := g.Lookup(t.Context(), HeldKey)
	require.NoError(t, err)
	return info.Seen()
}
