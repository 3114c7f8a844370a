package idempotency_test

import (
	"context"
	"maps"
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
		opts []idempotency.RedisOption
		args []string
	}{
		"alone":                 {nil, nil},
		"min-replicas-to-write": {nil, []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}},
		"WithReplicas(1)":       {[]idempotency.RedisOption{idempotency.WithReplicas(1, 500*time.Millisecond)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t, test.args...)
			link := faultproxy.New(t, master.Addr)
			replica := redistest.StartReplicaVia(t, link.Addr())
			store := redisAt(t, master, test.opts...)
			patient, cancel := context.WithTimeout(t.Context(), redisPatience)
			defer cancel()
			before := acknowledge(patient, store, 200)
			require.NotEmpty(t, before)

			link.Hole(faultproxy.ToServer)
			link.Hole(faultproxy.ToClient)
			apart, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			during := acknowledge(apart, store, -1)
			replica.Do(t, "REPLICAOF", "NO", "ONE")

			successor := redisAt(t, replica)
			lost := countLost(t, successor, before)
			t.Logf("acknowledged before the partition: %d lost of %d", lost, len(before))
			if test.opts != nil {
				require.Zero(t, lost)
				require.Empty(t, during)
				return
			}
			lost = countLost(t, successor, during)
			t.Logf("acknowledged during the partition: %d lost of %d", lost, len(during))
			require.NotEmpty(t, during)
			require.Equal(t, len(during), lost)
		})
	}
}

// A master dies under load, and its replica takes its place with what had reached it.
func TestRedisMasterKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.RedisOption{
		"alone":           nil,
		"WithReplicas(1)": {idempotency.WithReplicas(1, 5*time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t)
			link := faultproxy.New(t, master.Addr)
			replica := redistest.StartReplicaVia(t, link.Addr())
			link.Delay(faultproxy.ToClient, 10*time.Millisecond) // another data centre
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			store := redisAt(t, master, opts...)
			acknowledged := acknowledge(ctx, store, 50)
			time.AfterFunc(time.Second, func() { master.Kill(); cancel() })
			maps.Copy(acknowledged, acknowledge(ctx, store, -1))
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
