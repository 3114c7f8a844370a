package frametest

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// OwnContext requires that a handler which takes the context of its framework for a context.Context has its run. The
// function returns the URL of a server with the guard and the handler at POST, which gives charge that context, and
// answers 500 if it returns an error.
func OwnContext(t *testing.T, serve func(t testing.TB, guard *idempotency.Guard, charge func(context.Context) error) (url string)) {
	effects := 0
	var keys []string
	var used context.Context
	guard, _ := NewGuard(t, idempotency.SharedScope)
	url := serve(t, guard, func(ctx context.Context) error {
		used = ctx
		keys = append(keys, idempotency.DeriveKey(ctx, "bank"))
		_, err := idempotency.Step(ctx, "charge", func(context.Context) (int, error) { effects++; return effects, nil })
		if len(keys) == 1 && err == nil {
			err = errors.New("the next step fails")
		}
		return err
	})
	for _, status := range []int{http.StatusInternalServerError, http.StatusCreated} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode)
	}
	require.Equal(t, 1, effects, "the step was recorded")
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
	_, ok := idempotency.FromContext(used)
	require.False(t, ok, "a context that the framework keeps has no run any more")
}
