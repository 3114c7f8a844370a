package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// A key that the server has forgotten would be a new one.
func TestIntentThatIsTooOldIsNotSent(t *testing.T) {
	t.Parallel()
	base := answering(answer{status: 201})
	transport := newTransport(t, base, client.WithTTL(time.Hour))
	old := client.Intent{Key: "k", Since: time.Now().Add(-time.Hour), Resumed: true}
	body := &countedBody{Reader: once("{}")}
	_, err := send(transport, request(old.Context(t.Context()), "POST", place, body))
	require.ErrorIs(t, err, client.ErrKeyExpired)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Equal(t, client.ReasonTTL, failure(t, err).Reason)
	require.Empty(t, base.requests())
	require.True(t, body.closed.Load())

	old.Since = time.Now().Add(-time.Hour + time.Minute)
	_, err = send(transport, post(old.Context(t.Context()), place, "{}"))
	require.NoError(t, err)
	require.Equal(t, "k", base.requireOneKey(t, 1))
}

// A request of an earlier process counts as an attempt that may have been executed.
func TestResumedIntentIsInDoubtFromTheStart(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		e := client.Intent{Key: "k", Since: time.Now(), Resumed: resumed}
		_, err := send(newTransport(t, answering(answer{status: 401})), post(e.Context(t.Context()), place, "{}"))
		if resumed {
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
		} else {
			require.NoError(t, err)
		}
	}
}
