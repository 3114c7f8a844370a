package redisclient

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// The functions that hang are not called without end.
func TestHungFunctionsAreCalledToABound(t *testing.T) {
	goOn, calls := make(chan struct{}), make(chan struct{}, 2*maxStuck)
	o := &redis.Options{OnConnect: func(context.Context, *redis.Conn) error {
		calls <- struct{}{}
		<-goOn
		return nil
	}}
	boundConnecting(o)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range maxStuck {
		require.ErrorIs(t, o.OnConnect(over, nil), context.Canceled)
	}
	require.ErrorIs(t, o.OnConnect(over, nil), errStuck)
	for range maxStuck {
		<-calls
	}
	require.Empty(t, calls)
	close(goOn)
	require.Eventually(t, func() bool { return o.OnConnect(t.Context(), nil) == nil }, time.Minute, time.Millisecond)
}
