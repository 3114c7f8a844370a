package redisfaults

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

// A master that is cut off from its replica goes on answering the clients on its side until
// they learn that the replica has replaced it. Whatever it acknowledged in between is lost,
// unless the acknowledgement waited for the replica. docs/explanation/durability.md shows the figures
// of this test.
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
			store := guardtest.RedisAt(t, master, test.opts...)
			patient, cancel := context.WithTimeout(t.Context(), guardtest.Patience)
			defer cancel()
			before := acknowledge(patient, store, 200)
			require.NotEmpty(t, before)

			link.Hole(faultproxy.ToServer)
			link.Hole(faultproxy.ToClient)
			apart, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			during := acknowledge(apart, store, -1)
			replica.Do(t, "REPLICAOF", "NO", "ONE")

			successor := guardtest.RedisAt(t, replica)
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

// A run outlasts its lease by renewals. Renewals that only a cut-off master knows about
// protect nothing once the replica has replaced it. By then the run is no longer sure of
// its lease.
func TestRedisPartitionDuringRun(t *testing.T) {
	slow(t)
	t.Parallel()
	master := redistest.Start(t)
	link := faultproxy.New(t, master.Addr)
	replica := redistest.StartReplicaVia(t, link.Addr())
	store := guardtest.RedisAt(t, master, idempotency.WithReplicas(1, time.Second))
	patient, cancel := context.WithTimeout(t.Context(), guardtest.Patience)
	defer cancel()
	require.NotEmpty(t, acknowledge(patient, store, 1)) // the replica answers
	var runs [3]*idempotency.Operation
	h := interrupt(nil)
	pass := h.Handler
	h.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
		runs[run], _ = idempotency.FromContext(r.Context())
		runs[run].SetOutcome(idempotency.NotExecuted) // there is no replica left to record an answer
		pass(w, r, run)
	}
	lease := idempotency.WithLease(6 * time.Second)
	a, b := newRedisProcess(t, store, h, lease), newRedisProcess(t, guardtest.RedisAt(t, replica), h, lease)
	h.start(t, a, guardtest.Call{Key: "running"})
	require.True(t, runs[1].Valid())

	link.Hole(faultproxy.ToServer)
	link.Hole(faultproxy.ToClient)
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	require.Equal(t, "run 2", b.persist(t, guardtest.Call{Key: "running"}).Body)
	require.Equal(t, 2, runs[2].Attempt())
	require.False(t, runs[1].Valid())
}

// A master dies under load, and its replica replaces it with everything it had received.
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
			store := guardtest.RedisAt(t, master, opts...)
			acknowledged := acknowledge(ctx, store, 50)
			time.AfterFunc(time.Second, func() { master.Kill(); cancel() })
			maps.Copy(acknowledged, acknowledge(ctx, store, -1))
			replica.Do(t, "REPLICAOF", "NO", "ONE")
			lost := countLost(t, guardtest.RedisAt(t, replica), acknowledged)
			t.Logf("%d of %d acknowledged claims lost", lost, len(acknowledged))
			require.NotEmpty(t, acknowledged)
			if opts != nil {
				require.Zero(t, lost)
			}
		})
	}
}
