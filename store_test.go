package idempotency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// The name of a state becomes the label of a metric and a word in a log, also where there
// is no record.
func TestStateString(t *testing.T) {
	t.Parallel()
	for state, want := range map[idempotency.State]string{
		0:                          "none",
		idempotency.StateClaimed:   "claimed",
		idempotency.StateReleased:  "released",
		idempotency.StateCompleted: "completed",
		idempotency.StateHeld:      "held",
		9:                          "unknown(9)",
	} {
		require.Equal(t, want, state.String())
	}
}
