package rpctest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"example.com/idempotency"
	"example.com/idempotency/adapters/connectidempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/rpctest/bankv1"
	"example.com/idempotency/queue"
	"example.com/idempotency/store"
)

// onEach runs a test on each transport, with a guard of its own.
func onEach(t *testing.T, s settings, opts []idempotency.Option, test func(t *testing.T, c client, b *bank, guard *idempotency.Guard)) {
	onEachTransport(t, func(t *testing.T, tr transport) {
		b, guard := newBank(), newGuard(t, idempotency.NewMemoryStore(), opts...)
		test(t, tr.serve(t, b, guard, s), b, guard)
	})
}

// requireRefusal checks all that a refusal tells: its code, its details, and its fields.
func requireRefusal(t *testing.T, a answer, code uint32, problem string) {
	t.Helper()
	require.Equal(t, code, a.Code, "%+v", a)
	require.Equal(t, problem, a.Problem, "%+v", a)
	require.NotEmpty(t, a.Message)
	reason := strings.ToUpper(strings.ReplaceAll(problem, "-", "_"))
	require.Contains(t, a.Details[0], "google.rpc.ErrorInfo")
	require.Contains(t, a.Details[0], reason)
	require.Contains(t, a.Details[0], "idempotency")
	require.Contains(t, a.Details[0], problem)
	retries := strings.Contains(strings.Join(a.Details, "\n"), "google.rpc.RetryInfo")
	require.Equal(t, code == aborted || code == unavailable, retries, a.Details)
	require.Equal(t, retries, first(a.Header, "Retry-After") == "1" || first(a.Trailer, "Retry-After") == "1", "%+v", a)
}

func TestDuplicateInFlight(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		done := make(chan answer)
		go func() { done <- c(t.Context(), keyed("key", "slow")) }()
		<-b.entered
		requireRefusal(t, c(t.Context(), keyed("key", "slow")), aborted, "in-flight")
		close(b.release)
		got := <-done
		require.Zero(t, got.Code, got.Message)
		again := c(t.Context(), keyed("key", "slow"))
		require.True(t, again.Replayed)
		require.Equal(t, got.Response, again.Response)
		require.Equal(t, 1, b.ran("slow"))
	})
}

func TestWaitingDuplicateGetsTheAnswer(t *testing.T) {
	onEach(t, settings{}, []idempotency.Option{idempotency.WithWait(time.Minute)}, func(t *testing.T, c client, b *bank, guard *idempotency.Guard) {
		first, second := make(chan answer), make(chan answer)
		go func() { first <- c(t.Context(), keyed("key", "slow")) }()
		<-b.entered
		go func() { second <- c(t.Context(), keyed("key", "slow")) }()
		require.Eventually(t, func() bool { return guard.Stats().Waiting == 1 }, guardtest.Patience, time.Millisecond)
		close(b.release)
		require.Equal(t, (<-first).Response, (<-second).Response)
		require.Equal(t, 1, b.ran("slow"))
	})
}

func TestKeyIsBoundToTheCall(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		send := keyed("key", "plain")
		require.Zero(t, c(t.Context(), send).Code)
		for name, other := range map[string]func(*call){
			"amount":    func(c *call) { c.req.Amount++ },
			"procedure": func(c *call) { c.method = "Refund" },
			"unknown":   func(c *call) { c.req.ProtoReflect().SetUnknown([]byte{0x9a, 0x06, 1, 'x'}) },
			"oneof":     func(c *call) { c.req.To = &bankv1.PayRequest_Card{} },
			"list":      func(c *call) { c.req.Notes = []string{""} },
		} {
			changed := send
			changed.req = proto.Clone(send.req).(*bankv1.PayRequest)
			other(&changed)
			if name == "unknown" && strings.Contains(t.Name(), "JSON") {
				continue // JSON cannot carry it
			}
			requireRefusal(t, c(t.Context(), changed), failedPrecondition, "key-reused")
		}
		require.True(t, c(t.Context(), send).Replayed)
		require.Equal(t, 1, b.ran("plain"))
	})
}

// Clients send the entries of a map in any order.
func TestOrderOfMapEntriesDoesNotMatter(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		send := keyed("key", "plain")
		send.req.Labels = map[string]string{}
		for i := range 12 {
			send.req.Labels[fmt.Sprint("label", i)] = fmt.Sprint(i)
		}
		send.req.Part = &bankv1.PayRequest{Labels: send.req.Labels}
		encodings := map[string]bool{}
		for i := range 100 {
			data, err := proto.Marshal(send.req)
			require.NoError(t, err)
			encodings[string(data)] = true
			got := c(t.Context(), send)
			require.Zero(t, got.Code, got.Message)
			require.Equal(t, i > 0, got.Replayed)
		}
		require.Greater(t, len(encodings), 10, "the encoder has one order")
		require.Equal(t, 1, b.ran("plain"))
	})
}

func TestKeys(t *testing.T) {
	onEach(t, settings{}, []idempotency.Option{idempotency.WithRequired(true)}, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		with := func(keys ...string) answer {
			send := keyed("", "plain")
			send.md["idempotency-key"] = keys
			if keys == nil {
				delete(send.md, "idempotency-key")
			}
			return c(t.Context(), send)
		}
		for _, bad := range [][]string{{"a,b"}, {"a b"}, {`"abc`}, {"abc", "abc"}, {`""`}, {strings.Repeat("k", 256)}} {
			got := with(bad...)
			requireRefusal(t, got, invalidArgument, "key-invalid")
			require.Contains(t, got.Details[1], "BadRequest")
		}
		requireRefusal(t, with(), invalidArgument, "key-missing")
		require.Zero(t, b.ran("plain"))
		require.Zero(t, with(`"abc"`).Code)
		require.True(t, with("abc").Replayed, "both forms name one key")
	})
}

func TestCallWithoutAKeyPasses(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		send := keyed("key", "plain")
		delete(send.md, "idempotency-key")
		require.Zero(t, c(t.Context(), send).Code)
		require.False(t, c(t.Context(), send).Replayed)
		require.Equal(t, 2, b.ran("plain"))
		require.Empty(t, b.attemptsOf("plain"))
	})
}

func TestScopeSeparatesCallers(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		as := func(tenant string) answer {
			send := keyed("key", "plain")
			send.md["tenant"] = []string{tenant}
			return c(t.Context(), send)
		}
		require.NotEqual(t, as("acme").Response, as("other").Response)
		require.Equal(t, 2, b.ran("plain"))
		requireRefusal(t, as(""), permissionDenied, "scope-unresolved")
	})
}

func TestScopeErrors(t *testing.T) {
	for _, tt := range []struct {
		err     error
		code    uint32
		problem string
	}{
		{idempotency.ErrUnauthenticated, unauthenticated, "unauthenticated"},
		{idempotency.ErrTryLater, unavailable, "try-later"},
		{fmt.Errorf("secret of the server"), permissionDenied, "scope-unresolved"},
	} {
		t.Run(tt.problem, func(t *testing.T) {
			scope := func(context.Context) (string, error) { return "", tt.err }
			onEach(t, settings{scope: scope}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
				got := c(t.Context(), keyed("key", "plain"))
				requireRefusal(t, got, tt.code, tt.problem)
				require.NotContains(t, got.Message, "secret")
				require.Zero(t, b.ran("plain"))
			})
		})
	}
	for name, own := range map[string]string{"shared": store.Shared, "queue": queue.Message{Queue: "orders", ID: "1"}.Key().Scope} {
		t.Run(name+" by another function", func(t *testing.T) {
			scope := func(context.Context) (string, error) { return own, nil }
			onEach(t, settings{scope: scope}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
				requireRefusal(t, c(t.Context(), keyed("key", "plain")), permissionDenied, "scope-unresolved")
				require.Zero(t, b.ran("plain"))
			})
		})
	}
}

// answerOf is the same in both modules.
var answerOf = connectidempotency.Answer

func TestHeldKey(t *testing.T) {
	s := settings{hold: []string{"/bank.v1.Bank/Pay"}}
	onEach(t, s, nil, func(t *testing.T, c client, b *bank, guard *idempotency.Guard) {
		for _, name := range []string{"code 14", "code 13", "error without a code", "panic"} {
			key := strings.ReplaceAll(name, " ", "-")
			require.NotZero(t, c(t.Context(), keyed(key, name)).Code)
			requireRefusal(t, c(t.Context(), keyed(key, name)), failedPrecondition, "outcome-unknown")
			require.Equal(t, 1, b.ran(name), name)
		}
		// An operator has looked it up.
		info := guardtest.Lookup(t, guard, idempotency.Key{Scope: "acme", Value: "code-13"})
		body, err := answerOf(&bankv1.PayResponse{Id: "made by hand"}, nil)
		require.NoError(t, err)
		require.NoError(t, guard.Resolve(t.Context(), idempotency.Key{Scope: "acme", Value: "code-13"}, info.Seen(),
			idempotency.Resolution{Outcome: idempotency.Final, Body: body}))
		settled := c(t.Context(), keyed("code-13", "code 13"))
		require.True(t, settled.Replayed)
		require.Contains(t, settled.Response, "made by hand")

		// What invites a retry, or says that nothing was done, would be a lie.
		requireRefusal(t, c(t.Context(), keyed("a", "code 10")), failedPrecondition, "outcome-unknown")
		requireRefusal(t, c(t.Context(), keyed("b", "refusal after an effect")), failedPrecondition, "outcome-unknown")

		// Another procedure is not under Hold.
		send := keyed("refund", "code 14")
		send.method = "Refund"
		c(t.Context(), send)
		require.EqualValues(t, unavailable, c(t.Context(), send).Code)
	})
}

func TestStoreIsAway(t *testing.T) {
	onEachTransport(t, func(t *testing.T, tr transport) {
		st := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
		b := newBank()
		c := tr.serve(t, b, newGuard(t, st), settings{})
		st.Fail(guardtest.Refuse)
		requireRefusal(t, c(t.Context(), keyed("key", "plain")), unavailable, "store-unavailable")
		require.Zero(t, b.ran("plain"))
		st.Heal()
		require.Zero(t, c(t.Context(), keyed("key", "plain")).Code)
		require.True(t, c(t.Context(), keyed("key", "plain")).Replayed)
	})
}

func TestShutdown(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, guard *idempotency.Guard) {
		require.Zero(t, c(t.Context(), keyed("key", "plain")).Code)
		require.NoError(t, guard.Shutdown(t.Context()))
		requireRefusal(t, c(t.Context(), keyed("key", "plain")), unavailable, "shutting-down")
		require.Equal(t, 1, b.ran("plain"))
	})
}

// A client that hangs up finds the answer when it comes back.
func TestCanceledCallGoesOn(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, guard *idempotency.Guard) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan answer)
		go func() { done <- c(ctx, keyed("key", "slow")) }()
		<-b.entered
		cancel()
		require.EqualValues(t, canceled, (<-done).Code)
		<-b.hungUp
		close(b.release)
		require.Eventually(t, func() bool { return guard.Stats().Running == 0 }, guardtest.Patience, time.Millisecond)
		again := c(t.Context(), keyed("key", "slow"))
		require.True(t, again.Replayed, "%+v", again)
		require.Equal(t, 1, b.ran("slow"))
	})
}

// The deadline of a client is that of the run. What it has done by then is not known.
func TestDeadlineEndsTheRun(t *testing.T) {
	onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, guard *idempotency.Guard) {
		defer close(b.giveUp)
		// On a slow machine, a call may end before its run has begun. Another one with its key would be a
		// duplicate.
		var key string
		for n := 0; len(b.attemptsOf(key)) == 0; n++ {
			key = fmt.Sprint("key-", n)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			got := c(ctx, keyed(key, "until the deadline"))
			cancel()
			// A claim for which there was no time left is refused, and that may be heard before the deadline is.
			begun := len(b.attemptsOf(key)) != 0
			require.True(t, got.Code == deadlineExceeded || !begun && got.Problem == "store-unavailable", "%+v", got)
		}
		require.Eventually(t, func() bool { return guard.Stats().Running == 0 }, guardtest.Patience, time.Millisecond)
		again := c(t.Context(), keyed(key, "until the deadline"))
		require.Zero(t, again.Code)
		require.False(t, again.Replayed)
		attempts := b.attemptsOf(key)
		require.Len(t, attempts, 2)
		require.Less(t, attempts[0], attempts[1])
	})
}

func TestStreamsAreRefused(t *testing.T) {
	watch := keyed("key", "plain")
	watch.method = "Watch"
	bare := watch
	bare.md = map[string][]string{"tenant": {"acme"}}
	t.Run("by default", func(t *testing.T) {
		onEach(t, settings{}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
			requireRefusal(t, c(t.Context(), watch), unimplemented, "stream-unprotected")
			require.Zero(t, b.ran("plain"))
			require.Zero(t, c(t.Context(), bare).Code)
		})
	})
	t.Run("where a key is required", func(t *testing.T) {
		onEach(t, settings{}, []idempotency.Option{idempotency.WithRequired(true)}, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
			requireRefusal(t, c(t.Context(), bare), unimplemented, "stream-unprotected")
			require.Zero(t, b.ran("plain"))
		})
	})
	t.Run("or let through", func(t *testing.T) {
		onEach(t, settings{streams: true}, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
			require.Zero(t, c(t.Context(), watch).Code)
			require.Equal(t, 3, b.ran("plain"))
		})
	})
}

func TestOwnOutcome(t *testing.T) {
	outcome := func(err error) idempotency.Outcome {
		if err != nil {
			return idempotency.NotExecuted // also after a step
		}
		return idempotency.Final
	}
	s := settings{outcome: outcome, hold: []string{"/bank.v1.Bank/Pay"}}
	onEach(t, s, nil, func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
		for _, name := range []string{"code 3", "code 14", "turned away after a step"} {
			key := strings.ReplaceAll(name, " ", "-")
			c(t.Context(), keyed(key, name))
			c(t.Context(), keyed(key, name))
			require.Equal(t, []int{1, 2}, b.attemptsOf(name), name)
		}
	})
}

// A shadow refuses nothing and replays nothing.
func TestShadow(t *testing.T) {
	onEach(t, settings{}, []idempotency.Option{idempotency.WithShadow(true), idempotency.WithRequired(true)},
		func(t *testing.T, c client, b *bank, _ *idempotency.Guard) {
			for _, key := range []string{"key", "key", "bad,key", ""} {
				got := c(t.Context(), keyed(key, "plain"))
				require.Zero(t, got.Code)
				require.False(t, got.Replayed)
			}
			watch := keyed("key", "plain")
			watch.method = "Watch"
			require.Zero(t, c(t.Context(), watch).Code)
			require.Equal(t, 7, b.ran("plain"))
		})
}

// The value of a guard's own key space: the store that fails after the run.
func TestAnswerThatTheStoreDoesNotTake(t *testing.T) {
	onEachTransport(t, func(t *testing.T, tr transport) {
		st := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
		st.RefuseAbove(10<<10, store.ErrTooLarge)
		b := newBank()
		c := tr.serve(t, b, newGuard(t, st), settings{})
		require.Zero(t, c(t.Context(), keyed("key", "large")).Code)
		requireRefusal(t, c(t.Context(), keyed("key", "large")), alreadyExists, "response-not-kept")
		require.Equal(t, 1, b.ran("large"))
	})
}
