package redisfaults

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Scripts that a server has forgotten, and messages with them that are lost.

// A server may forget its scripts between any two commands. Requests do not notice, and
// nothing runs twice.
func TestRedisScriptsForgottenUnderLoad(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	redistest.StartReplica(t, master)
	answers := [...]string{"small", strings.Repeat("large ", 5000)}
	for name, opts := range map[string][]idempotency.RedisOption{
		"alone":    nil,
		"replicas": {idempotency.WithReplicas(1, 5*time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
				_, _ = fmt.Fprint(w, run, " ")
				_, _ = io.WriteString(w, answers[run%2])
			}}
			p := newRedisProcess(t, guardtest.RedisAt(t, master, opts...), h)
			const clients, each = 4, 50
			ended := make(chan struct{})
			var traffic, flushes sync.WaitGroup
			for n := range clients {
				traffic.Go(func() {
					for i := range each {
						c := guardtest.Call{Key: fmt.Sprintf("%s-%d-%d", name, n, i)}
						first, again := p.Attempt(t, c), p.Attempt(t, c)
						if first.Status != http.StatusOK || first.Replayed() || !again.Replayed() || again.Body != first.Body {
							t.Errorf("%s: %d, then %d, replayed: %v", c.Key, first.Status, again.Status, again.Replayed())
						}
					}
				})
			}
			flushes.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						master.Do(t, "SCRIPT", "FLUSH")
					}
				}
			})
			traffic.Wait()
			close(ended)
			flushes.Wait()
			require.EqualValues(t, clients*each, h.Runs.Load())
			for _, err := range p.events.Errors() {
				require.NotContains(t, err.Error(), "NOSCRIPT")
			}
		})
	}
}

// A wireFault is one message to Redis that the network loses, or its reply.
type wireFault struct {
	op       wireOp
	contains string // by which the message is known
	fault    faultproxy.Fault
	retries  int  // of the client: 0 is its default, -1 is none
	replicas bool // the message is a pipeline with a WAIT
}

// A wireOp is a call of the store, and a run in which the call is made.
type wireOp struct {
	call   string // that executes the script of that name, or a command
	body   string // of the answer
	status int    // of the first run
	renews bool   // the first run goes on until its claim has been renewed once more
	runs   int64
}

// wireLease leaves five seconds for the renewal that comes after one that hangs.
const wireLease = 12 * time.Second

var wireOps = map[string]wireOp{
	"claim":          {"claim", "small", 200, false, 1},
	"enter":          {"enter", "small", 200, false, 1},
	"step":           {"step", "small", 200, false, 1},
	"renew":          {"renew", "small", 200, true, 1},
	"complete":       {"settle", "small", 200, false, 1},
	"complete large": {"multi", strings.Repeat("large ", 5000), 200, false, 1},
	"release":        {"settle", "small", 429, false, 2},
	"hold":           {"settle", "small", 502, false, 1},
}

// One message to the server is lost, or its reply, and the client library sends it again or
// does not. In every case all clients that retry get one and the same answer, no run and no
// step is repeated, and no run loses its lease. The routes never repeat a run that has
// begun. An orphaned claim would therefore show as a held key.
func TestRedisMessageLost(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	redistest.StartReplica(t, master)
	scripts := redisproto.Digests()
	teachScripts(t, master)
	for _, op := range wireOps {
		if digest, ok := scripts[op.call]; ok {
			require.Equal(t, []any{int64(1)}, master.Do(t, "SCRIPT", "EXISTS", digest), op.call)
		}
	}

	cases := make(map[string]wireFault)
	for name, op := range wireOps {
		for what, fault := range map[string]faultproxy.Fault{
			"request lost": faultproxy.LoseRequest,
			"reply lost":   faultproxy.LoseReply,
			"reply hangs":  faultproxy.HangReply,
			"reply is cut": faultproxy.CutReply,
		} {
			for how, retries := range map[string]int{"resent": 0, "not resent": -1} {
				c := wireFault{op, cmp.Or(scripts[op.call], op.call), fault, retries, false}
				cases[strings.Join([]string{name, what, how}, ", ")] = c
				if name == "claim" || name == "complete" {
					c.replicas = true
					cases[strings.Join([]string{name, "with replicas", what, how}, ", ")] = c
				}
			}
		}
	}
	sideBySide(t, cases, func(t *testing.T, c wireFault) { c.test(t, master) })
}

// teachScripts lets a server see the scripts of a run. A message with one that it has not seen is sent
// again with the source in place of the digest.
func teachScripts(t *testing.T, server *redistest.Server) {
	t.Helper()
	s := guardtest.RedisStore(t, guardtest.PatientRedisClient(t, server.Addr))
	ctx, key, c := t.Context(), guardtest.RedisKey(), holdClaim()
	claimed(t, s, key, c)
	require.NoError(t, s.SaveStep(ctx, key, c.Owner, "charge", []byte("1")))
	require.NoError(t, s.Renew(ctx, key, c.Owner))
	require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}))
}

func (c wireFault) test(t *testing.T, master *redistest.Server) {
	var charges, sent atomic.Int64
	again := make(chan struct{}) // closed when the message that suffers is sent for the second time
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
		if run == 1 && c.op.status == http.StatusTooManyRequests { // before any step: after one it would be Unknown
			w.WriteHeader(c.op.status)
			return
		}
		start := time.Now()
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int64, error) { return charges.Add(1), nil })
		// A step that cannot be recorded is given up after two seconds, of which a reply that hangs takes the first.
		late := c.fault == faultproxy.HangReply && errors.Is(err, idempotency.ErrNotRecorded) && time.Since(start) > 1900*time.Millisecond
		assert.False(t, err != nil && !late)
		if run == 1 {
			if c.op.renews {
				select {
				case <-again:
				case <-r.Context().Done(): // the claim is lost
				}
			}
			if c.op.status == http.StatusTooManyRequests {
				turnAway(w, r)
			} else {
				w.WriteHeader(c.op.status)
			}
		}
		_, _ = fmt.Fprintf(w, "%d %s", run, c.op.body)
	}}
	var opts []idempotency.RedisOption
	if c.replicas {
		opts = append(opts, idempotency.WithReplicas(1, 5*time.Second))
	}
	proxy := faultproxy.New(t, master.Addr)
	client := guardtest.RedisClientAt(t, proxy.Addr(), func(o *redis.Options) { o.MaxRetries = c.retries })
	if c.fault != faultproxy.HangReply { // no deadline is needed, and on a busy machine it would refuse
		client.AddHook(guardtest.PatientHook{})
	}
	p := newRedisProcess(t, guardtest.RedisStore(t, client, opts...), h,
		idempotency.WithLease(wireLease), idempotency.WithRecovery(idempotency.Hold))
	suffers := func(message []byte) bool { return bytes.Contains(message, []byte(c.contains)) }
	proxy.Fail(faultproxy.LoseRequest, -1, func(message []byte) bool {
		if suffers(message) && sent.Add(1) == 2 {
			close(again)
		}
		return false
	})
	proxy.Fail(c.fault, 1, suffers)

	key := guardtest.Call{Key: guardtest.RedisKey()}
	first := p.persist(t, key)
	require.Equal(t, 1, proxy.Fired())
	if (c.op.call == "claim" || c.op.call == "enter") && c.retries == 0 && c.fault != faultproxy.HangReply {
		require.Zero(t, p.events.Count(event.Refused), "the client library has sent it again")
	}
	second := p.persist(t, key)
	switch c.op.status {
	case http.StatusOK:
		require.False(t, first.Replayed())
		require.Equal(t, "1 "+c.op.body, first.Body)
		require.True(t, second.Replayed())
		require.Equal(t, first.Body, second.Body)
	case http.StatusTooManyRequests:
		require.Equal(t, http.StatusTooManyRequests, first.Status)
		require.Equal(t, "2 "+c.op.body, second.Body)
	default:
		require.Equal(t, http.StatusBadGateway, first.Status)
		guardtest.RequireProblem(t, second, http.StatusConflict, problem.OutcomeUnknown)
	}
	require.Equal(t, c.op.runs, h.Runs.Load())
	require.EqualValues(t, 1, charges.Load())
	require.Zero(t, p.events.Count(event.LeaseLost))
	require.NoError(t, p.guard.Shutdown(t.Context()))
}

// persist sends a request again until the answer does not ask for a retry.
func (p *redisProcess) persist(t *testing.T, c guardtest.Call) guardtest.Reply {
	t.Helper()
	var got guardtest.Reply
	require.Eventually(t, func() bool {
		got = p.Do(t, c)
		return got.Header.Get("Retry-After") == ""
	}, 2*guardtest.Patience, 50*time.Millisecond)
	return got
}

// A server does not undo what a script has written before it was refused a command. A call that fails for want of a right
// shortens the life of no record that it leaves as it was, and repeats no note.
func TestScriptsThatAreRefusedInTheMiddle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, ctx := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)), t.Context()
	newClaim := func() store.Claim {
		c := guardtest.RedisClaim()
		c.Hold, c.Note, c.Label = true, []byte("note"), "POST /payouts"
		return c
	}
	answer := store.Completion{Status: 201, Answer: []byte("x"), TTL: time.Minute}
	calls := map[string]struct {
		before, call func(s *idempotency.RedisStore, key string, c store.Claim) error
	}{
		"complete": {nil, func(s *idempotency.RedisStore, key string, c store.Claim) error {
			return s.Complete(ctx, key, c.Owner, answer)
		}},
		"release": {nil, func(s *idempotency.RedisStore, key string, c store.Claim) error {
			return s.Release(ctx, key, c.Owner, store.Release{})
		}},
		"resolve": {
			func(s *idempotency.RedisStore, key string, c store.Claim) error {
				return s.Hold(ctx, key, c.Owner, nil)
			},
			func(s *idempotency.RedisStore, key string, c store.Claim) error {
				undone := map[string][]byte{"s": []byte("v")}
				return s.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 1), store.Settlement{Completion: &answer, Note: []byte("ada"), Undone: undone})
			},
		},
		"step": {nil, func(s *idempotency.RedisStore, key string, c store.Claim) error {
			return s.SaveStep(ctx, key, c.Owner, "s", []byte("done"))
		}},
		"claim": {
			func(s *idempotency.RedisStore, key string, c store.Claim) error {
				return s.Release(ctx, key, c.Owner, store.Release{})
			},
			func(s *idempotency.RedisStore, key string, _ store.Claim) error {
				_, err := s.Claim(ctx, key, newClaim())
				return err
			},
		},
	}
	for _, right := range []string{"+hset", "+hdel", "+pexpire", "+hget", "+hmget", "+publish", "+hgetall"} {
		account := slices.DeleteFunc(documentedAccount(t), func(word string) bool { return word == right })
		less := guardtest.RedisStore(t, redisAccount(t, []*redistest.Server{server}, account))
		for name, c := range calls {
			key, claim, waits := guardtest.RedisKey(), newClaim(), newClaim()
			waits.Watch = true
			claimed(t, admin, key, claim)
			claimed(t, admin, key, waits)
			require.NoError(t, admin.SaveStep(ctx, key, claim.Owner, "s", []byte("v")))
			if c.before != nil {
				require.NoError(t, c.before(admin, key, claim))
				claimed(t, admin, key, waits)
			}
			look := func() (record any, lives int64) {
				return server.Do(t, "HGETALL", "idem:"+key), server.Do(t, "PTTL", "idem:"+key).(int64)
			}
			record, lives := look()
			server.Do(t, "SCRIPT", "FLUSH")
			if c.call(less, key, claim) == nil {
				continue // without this right
			}
			after, left := look()
			if right != "+hdel" && right != "+publish" && (name != "claim" || right == "+hset") { // else it comes when all is changed
				require.Equal(t, record, after, "%s without %s", name, right)
			}
			require.False(t, reflect.DeepEqual(record, after) && left < lives-time.Minute.Milliseconds(), "%s without %s: it ends earlier", name, right)
		}
	}
}
