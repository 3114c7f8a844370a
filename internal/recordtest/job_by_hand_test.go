package recordtest

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A key of Do is resolved with a value, and is not mixed up with one of a request.
func TestResolveGivesDoItsValue(t *testing.T) {
	t.Parallel()
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
	pay := func(err error) (string, idempotency.Result, error) {
		return idempotency.Do(t.Context(), guard, jobKey, func(context.Context) (string, error) { return "paid", err })
	}
	_, _, err := pay(io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, _, err = pay(nil)
	require.ErrorIs(t, err, idempotency.ErrHeld)
	info, err := guard.Lookup(t.Context(), jobKey)
	require.NoError(t, err)
	require.NoError(t, guard.Resolve(t.Context(), jobKey, info.Seen(), idempotency.Resolution{
		Outcome: idempotency.Final, Body: []byte(`"paid by hand"`),
	}))
	got, result, err := pay(nil)
	require.NoError(t, err)
	require.Equal(t, "paid by hand", got)
	require.Equal(t, idempotency.Result{Replayed: true, Attempt: 1, Outcome: idempotency.Final}, result)
}

// A message has no value, so who settles it has no body to give. One whose codec needs a body gets what it
// makes of none.
func TestResolveGivesDoNoValue(t *testing.T) {
	t.Parallel()
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
	handle := func(err error) (*struct{}, idempotency.Result, error) {
		return idempotency.Do(t.Context(), guard, jobKey, func(context.Context) (*struct{}, error) { return nil, err })
	}
	_, _, err := handle(io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	info, err := guard.Lookup(t.Context(), jobKey)
	require.NoError(t, err)
	require.NoError(t, guard.Resolve(t.Context(), jobKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.Final}))
	got, result, err := handle(nil)
	require.NoError(t, err)
	require.Nil(t, got)
	require.True(t, result.Replayed)
}
