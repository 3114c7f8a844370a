package idempotency_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
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

// A RedisStore promises no more than its client keeps.
func TestRedisObeysContext(t *testing.T) {
	t.Parallel()
	for _, obeys := range []bool{false, true} {
		for _, cluster := range []bool{false, true} {
			client := redis.NewUniversalClient(&redis.UniversalOptions{
				Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: obeys, IsClusterMode: cluster,
			})
			t.Cleanup(func() { _ = client.Close() })
			require.Equal(t, obeys, idempotency.NewRedisStore(client).ObeysContext())
		}
	}
}
