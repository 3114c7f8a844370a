package redisfaults

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A server with a small proto-max-bulk-len refuses a large value, and closes the connection. A
// run is recorded all the same: without its answer.
func TestRedisWithSmallBulkLength(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20 // the smallest that a server accepts
	server := redistest.Start(t, "--proto-max-bulk-len", "1mb")
	replica := redistest.StartReplica(t, server)
	require.Equal(t, "up", replica.Info(t, "replication")["master_link_status"])
	stores := map[string]*idempotency.RedisStore{
		"transaction": guardtest.RedisAt(t, server),
		"script":      guardtest.RedisAt(t, server, idempotency.WithReplicas(1, time.Second)),
	}
	for name, st := range stores {
		for size, n := range map[string]int{"just above": limit + 1, "far above": 12 << 20} {
			t.Run(name+"/"+size, func(t *testing.T) {
				t.Parallel()
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					w.Header().Set("Location", "/charges/1")
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte(strings.Repeat("x", n)))
				}}
				p := newRedisProcess(t, st, h, idempotency.WithLimits(idempotency.Limits{ResponseBody: 16 << 20}))
				call := guardtest.Call{Key: strings.ReplaceAll(name+" "+size, " ", "-")}
				require.Len(t, p.Do(t, call).Body, n)
				var again guardtest.Reply
				require.Eventually(t, func() bool {
					again = p.Do(t, call)
					return again.Problem.Code != problem.InFlight
				}, guardtest.Patience, 50*time.Millisecond)
				guardtest.RequireProblem(t, again, http.StatusConflict, problem.ResponseNotKept)
				require.Equal(t, "/charges/1", again.Problem.OriginalLocation)
				require.EqualValues(t, 1, h.Runs.Load())
				require.Equal(t, 1, p.events.Count(event.NotKept))
				require.Zero(t, p.events.Count(event.RecordingLost))
				for _, err := range p.events.Errors() {
					require.NotContains(t, err.Error(), "xxx")
				}
			})
		}
		t.Run(name+"/calls", func(t *testing.T) {
			t.Parallel()
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			// The server closes the connection after its reply, which is lost sometimes, and a busy
			// replica may be late.
			eventually := func(want error, call func() error) {
				t.Helper()
				require.Eventually(t, func() bool { return errors.Is(call(), want) }, guardtest.Patience, time.Millisecond)
			}
			complete := func(answer []byte) func() error {
				return func() error {
					return st.Complete(t.Context(), key, c.Owner, store.Completion{Answer: answer, TTL: time.Hour})
				}
			}
			eventually(nil, func() error {
				_, err := st.Claim(t.Context(), key, c)
				return err
			})
			eventually(store.ErrTooLarge, func() error {
				return st.SaveStep(t.Context(), key, c.Owner, "step", make([]byte, limit+1))
			})
			eventually(store.ErrTooLarge, complete(make([]byte, limit+1)))
			eventually(nil, complete([]byte("small")))
		})
	}
}

// paddingSealer makes a sealed value a MiB longer.
type paddingSealer struct{}

func (paddingSealer) Seal(plain, _ []byte) ([]byte, error) {
	return append(plain[:len(plain):len(plain)], make([]byte, 1<<20)...), nil
}

func (paddingSealer) Open(sealed, _ []byte) ([]byte, error) { return sealed[:len(sealed)-1<<20], nil }

// A step that is larger than the server takes has happened, and the handler learns that it is
// not recorded.
func TestRedisStepAboveTheBulkLength(t *testing.T) {
	t.Parallel()
	st := guardtest.RedisAt(t, redistest.Start(t, "--proto-max-bulk-len", "1mb"))
	var err error
	p := newRedisProcess(t, st, &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		_, err = idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
		w.WriteHeader(http.StatusInternalServerError)
	}}, idempotency.WithSealer(paddingSealer{}))
	p.Do(t, guardtest.Call{Key: "k"})
	require.ErrorIs(t, err, idempotency.ErrNotRecorded)
	require.ErrorIs(t, err, store.ErrTooLarge)
}
