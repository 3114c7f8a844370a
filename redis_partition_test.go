package idempotency_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/redistest"
)

// A master that is cut off from its replica goes on answering the clients on its side,
// until they hear that the replica has taken its place. What it acknowledged in between
// is lost, unless the acknowledgement waited for the replica. The figures are those of
// docs/operations.md.
func TestRedisPartition(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts  []idempotency.RedisOption
		args  []string
		loses bool
	}{
		"alone":                 {nil, nil, true},
		"min-replicas-to-write": {nil, []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}, true},
		"WithReplicas(1)":       {[]idempotency.RedisOption{idempotency.WithReplicas(1, 250*time.Millisecond)}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t, test.args...)
			link := faultproxy.New(t, master.Addr)
			replica := redistest.StartReplicaVia(t, link.Addr())
			store := redisAt(t, master, test.opts...)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			time.AfterFunc(time.Second/2, func() {
				link.Hole(faultproxy.ToServer)
				link.Hole(faultproxy.ToClient)
			})
			acknowledged := acknowledge(ctx, store)
			replica.Do(t, "REPLICAOF", "NO", "ONE")
			lost := countLost(t, redisAt(t, replica), acknowledged)
			t.Logf("%d of %d acknowledged claims lost", lost, len(acknowledged))
			require.NotEmpty(t, acknowledged)
			require.Equal(t, test.loses, lost > 0)
		})
	}
}

// A master dies under load, and its replica takes its place with what had reached it.
func TestRedisMasterKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.RedisOption{
		"alone":           nil,
		"WithReplicas(1)": {idempotency.WithReplicas(1, time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t)
			link := faultproxy.New(t, master.Addr)
			replica := redistest.StartReplicaVia(t, link.Addr())
			link.Delay(faultproxy.ToClient, 10*time.Millisecond) // another data centre
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Second, func() { master.Kill(); cancel() })
			acknowledged := acknowledge(ctx, redisAt(t, master, opts...))
			replica.Do(t, "REPLICAOF", "NO", "ONE")
			lost := countLost(t, redisAt(t, replica), acknowledged)
			t.Logf("%d of %d acknowledged claims lost", lost, len(acknowledged))
			require.NotEmpty(t, acknowledged)
			if opts != nil {
				require.Zero(t, lost)
			}
		})
	}
}
