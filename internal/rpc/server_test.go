package rpc

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

func shared(context.Context) (string, error) { return store.Shared, nil }

// A server remembers nothing of a call without a key, and few procedures of calls with one.
func TestProceduresLeaveLittleBehind(t *testing.T) {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.NoError(t, err)
	s := NewServer(Config{
		Module: "test", Guard: guard, Scope: shared, Shared: shared,
		Procedures: map[string][]idempotency.Option{"/one": {idempotency.WithRequired(true)}},
	})
	remembered := func() (n int) {
		s.labelled.Range(func(any, any) bool { n++; return true })
		return n
	}
	call := func(procedure string, keys ...string) Answer {
		return s.Handle(t.Context(), Call{
			Procedure: procedure,
			Values:    func(string) []string { return keys },
			Payload:   func() ([]byte, error) { return nil, nil },
			Run:       func(context.Context) *Reply { return &Reply{} },
		})
	}
	for i := range 10 {
		require.True(t, call(fmt.Sprint("/bare/", i)).Pass)
		require.Nil(t, s.RefuseStream(t.Context(), fmt.Sprint("/stream/", i), true, func(string) []string { return nil }))
		require.NotNil(t, s.RefuseStream(t.Context(), fmt.Sprint("/stream/", i), false, func(string) []string { return []string{"k"} }))
	}
	require.NotNil(t, call("/one").Refusal)
	require.Zero(t, remembered())
	for i := range maxLabels + 10 {
		require.Nil(t, call(fmt.Sprint("/keyed/\x00\xff", i), fmt.Sprint(i)).Refusal)
	}
	require.Equal(t, maxLabels, remembered())
}
