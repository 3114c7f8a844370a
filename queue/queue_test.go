package queue_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/queue"
	"example.com/idempotency/store"
)

func TestMain(m *testing.M) { os.Exit(guardtest.Main(m)) }

func newGuard(t *testing.T, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	return guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...)
}

// What becomes of a message, by how its function ends, and at its next delivery.
func TestHandle(t *testing.T) {
	down := errors.New("down")
	gone := idempotency.Permanent(errors.New("customer is gone"))
	limit := idempotency.WithRecovery(idempotency.HoldAfter(2))
	hold := idempotency.WithRecovery(idempotency.Hold)
	type delivery struct {
		end  func() error
		want queue.Disposition
		err  error
		runs int
	}
	done := func() error { return nil }
	failed := func() error { return down }
	tests := map[string]struct {
		opts       []idempotency.Option
		deliveries []delivery
	}{
		"done": {nil, []delivery{{done, queue.Ack, nil, 1}, {done, queue.Ack, nil, 1}}},
		"failed, then done": {nil, []delivery{
			{failed, queue.Retry, down, 1}, {done, queue.Ack, nil, 2}, {failed, queue.Ack, nil, 2},
		}},
		"refused for good": {nil, []delivery{
			{func() error { return gone }, queue.Park, gone, 1}, {done, queue.Park, nil, 1},
		}},
		"fails each time": {[]idempotency.Option{limit}, []delivery{
			{failed, queue.Retry, down, 1}, {failed, queue.Retry, down, 2}, {done, queue.Park, idempotency.ErrHeld, 2},
		}},
		"panics each time": {[]idempotency.Option{limit}, []delivery{
			{func() error { panic(down) }, queue.Retry, down, 1},
			{func() error { panic("x") }, queue.Retry, nil, 2},
			{done, queue.Park, idempotency.ErrHeld, 2},
		}},
		"held": {[]idempotency.Option{hold}, []delivery{
			{failed, queue.Retry, down, 1}, {done, queue.Park, idempotency.ErrHeld, 1},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			guard, runs := newGuard(t, tt.opts...), 0
			for i, d := range tt.deliveries {
				got, err := queue.Handle(t.Context(), guard, queue.Message{Queue: "orders", ID: "m"}, func(context.Context) error {
					runs++
					return d.end()
				})
				require.Equal(t, d.want, got, i)
				require.Equal(t, d.runs, runs, i)
				require.Equal(t, got == queue.Ack, err == nil)
				if d.err != nil {
					require.ErrorIs(t, err, d.err)
				}
			}
		})
	}
}

// A panic tells where it was, and the guard sees an unknown outcome.
func TestPanicOfAMessage(t *testing.T) {
	events := &guardtest.Events{}
	guard := newGuard(t, idempotency.WithObserver(events.Observe))
	_, err := queue.Handle(t.Context(), guard, queue.Message{Queue: "q", ID: "m"}, func(context.Context) error {
		lines := strings.Split("one line", "\n")
		return errors.New(lines[1])
	})
	var p *queue.PanicError
	require.ErrorAs(t, err, &p)
	require.ErrorContains(t, err, "index out of range")
	require.Contains(t, string(p.Stack), "TestPanicOfAMessage")
	require.Equal(t, idempotency.Unknown, events.All()[0].Outcome)
}

// After a panic nobody knows what was done, whatever the function has said before.
func TestPanicEndsWhatTheFunctionHasSaid(t *testing.T) {
	for _, said := range []idempotency.Outcome{idempotency.Final, idempotency.NotExecuted, idempotency.Unknown} {
		for _, v := range []any{"a text", idempotency.Permanent(errors.New("broken"))} {
			for recovery, want := range map[idempotency.Recovery]int{idempotency.Rerun: 3, idempotency.Hold: 1, idempotency.HoldAfter(2): 2} {
				guard := newGuard(t, idempotency.WithRecovery(recovery))
				runs := 0
				for range 3 {
					todo, err := queue.Handle(t.Context(), guard, queue.Message{Queue: "q", ID: "m"}, func(ctx context.Context) error {
						runs++
						guardtest.Op(ctx).SetOutcome(said)
						panic(v)
					})
					require.Error(t, err)
					var p *queue.PanicError
					if errors.As(err, &p) {
						require.Equal(t, queue.Retry, todo)
					}
				}
				require.Equal(t, want, runs, "%v %v", said, recovery)
			}
		}
	}
}

// A function that returns no error, and has said that the work is not done, gets its message again.
func TestNoErrorIsNotYetAnAck(t *testing.T) {
	for _, tt := range []struct {
		recovery idempotency.Recovery
		said     idempotency.Outcome
		want     queue.Disposition
	}{
		{idempotency.Rerun, idempotency.Final, queue.Ack},
		{idempotency.Rerun, idempotency.NotExecuted, queue.Retry},
		{idempotency.Rerun, idempotency.Unknown, queue.Retry},
		{idempotency.Hold, idempotency.NotExecuted, queue.Retry},
		{idempotency.Hold, idempotency.Unknown, queue.Park},
	} {
		guard := newGuard(t, idempotency.WithRecovery(tt.recovery))
		_, todo, err := queue.HandleValue(t.Context(), guard, queue.Message{Queue: "q", ID: "m"}, func(ctx context.Context) (string, error) {
			guardtest.Op(ctx).SetOutcome(tt.said)
			return "value", nil
		})
		require.Equal(t, tt.want, todo, "%+v", tt)
		require.Equal(t, todo == queue.Ack, err == nil, "%+v", tt)
	}
}

// What another delivery, another message or the store may say, and what the same error means when it
// comes from the function.
func TestDispositionOf(t *testing.T) {
	refused := idempotency.Result{Code: problem.InFlight}
	for err, want := range map[error]queue.Disposition{
		idempotency.ErrInFlight:       queue.Retry,
		idempotency.ErrShutdown:       queue.Retry,
		idempotency.ErrUnreadableHere: queue.Retry,
		idempotency.ErrCommitUnknown:  queue.Retry,
		idempotency.ErrStoreFull:      queue.Retry,
		context.Canceled:              queue.Retry,
		http.ErrServerClosed:          queue.Retry,
		idempotency.ErrKeyReused:      queue.Park,
		idempotency.ErrHeld:           queue.Park,
		idempotency.ErrCorrupt:        queue.Park,
		idempotency.ErrResultNotKept:  queue.Ack,
		errors.Join(idempotency.ErrCorrupt, idempotency.ErrUnreadableHere): queue.Retry,
	} {
		err = fmt.Errorf("wrapped: %w", err)
		require.Equal(t, want, queue.DispositionOf(refused, err), err)
		require.Equal(t, queue.Retry, queue.DispositionOf(idempotency.Result{}, err), err)
	}
	require.Equal(t, queue.Park, queue.DispositionOf(idempotency.Result{Replayed: true}, idempotency.ErrCorrupt), "a value of another type")
	for d, name := range map[queue.Disposition]string{0: "none", queue.Ack: "ack", queue.Retry: "retry", queue.Park: "park", 9: "disposition(9)"} {
		require.Equal(t, name, d.String())
	}
}

// A function that is refused another key has not handled its message, whatever that key's refusal means
// for the other one.
func TestErrorAboutAnotherKey(t *testing.T) {
	large, runs := newGuard(t, idempotency.WithLimits(idempotency.Limits{ResponseBody: 1})), 0
	other := idempotency.Key{Scope: "reports", Value: "november"}
	handle := func() (queue.Disposition, error) {
		return queue.Handle(t.Context(), newGuard(t), queue.Message{Queue: "q", ID: "m"}, func(ctx context.Context) error {
			runs++
			_, _, err := idempotency.Do(ctx, large, other, func(context.Context) (string, error) { return "a report", nil })
			return err
		})
	}
	got, err := handle()
	require.NoError(t, err)
	require.Equal(t, queue.Ack, got)
	got, err = handle()
	require.ErrorIs(t, err, idempotency.ErrResultNotKept)
	require.Equal(t, queue.Retry, got, "the message is not done")
	require.Equal(t, 2, runs)
}

// A message has no value that could be too large, whatever the guard keeps of other runs.
func TestAckIsNoError(t *testing.T) {
	guard, runs := newGuard(t, idempotency.WithLimits(idempotency.Limits{ResponseBody: 1})), 0
	for range 3 {
		todo, err := queue.Handle(t.Context(), guard, queue.Message{Queue: "q", ID: "m"}, func(context.Context) error {
			runs++
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, queue.Ack, todo)
	}
	require.Equal(t, 1, runs)
}

// What a delivery had no time to do with the value of its run, a later one can do.
func TestHandleValue(t *testing.T) {
	type row struct {
		limit int64
		todo  queue.Disposition
		value []string
		err   error
	}
	guardtest.Each(t, map[string]row{
		"kept":      {100, queue.Ack, []string{"shipped"}, nil},
		"too large": {5, queue.Park, nil, idempotency.ErrResultNotKept},
	}, func(t *testing.T, c row) {
		guard, runs := newGuard(t, idempotency.WithLimits(idempotency.Limits{ResponseBody: c.limit})), 0
		handle := func() ([]string, queue.Disposition, error) {
			return queue.HandleValue(t.Context(), guard, queue.Message{Queue: "q", ID: "m"}, func(context.Context) ([]string, error) {
				runs++
				return []string{"shipped"}, nil
			})
		}
		value, todo, err := handle()
		require.NoError(t, err)
		require.Equal(t, queue.Ack, todo)
		require.Equal(t, []string{"shipped"}, value)
		value, todo, err = handle()
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.todo, todo)
		require.Equal(t, c.value, value)
		require.Equal(t, 1, runs)
	})
}

// Messages of an unnamed queue would meet those of others, so they wait.
func TestMessageWithoutAQueue(t *testing.T) {
	got, err := queue.Handle(t.Context(), newGuard(t), queue.Message{ID: "m"}, func(context.Context) error {
		t.Error("it ran")
		return nil
	})
	require.Equal(t, queue.Retry, got)
	require.ErrorContains(t, err, "no Queue")
}

// A message that cannot be told from others is parked, and its function does not run.
func TestMessageWithoutAnID(t *testing.T) {
	guard := newGuard(t)
	for _, id := range []string{"", strings.Repeat("x", 256)} {
		got, err := queue.Handle(t.Context(), guard, queue.Message{Queue: "q", ID: id}, func(context.Context) error {
			t.Error("it ran")
			return nil
		})
		require.Equal(t, queue.Park, got)
		require.ErrorIs(t, err, queue.ErrNoID)
	}
}

// IDs of several queues never meet, and an ID is bound to its payload.
func TestMessagesAreToldApart(t *testing.T) {
	guard, runs := newGuard(t), 0
	handle := func(m queue.Message) queue.Disposition {
		got, _ := queue.Handle(t.Context(), guard, m, func(context.Context) error {
			runs++
			return nil
		})
		return got
	}
	require.Equal(t, queue.Ack, handle(queue.Message{Queue: "a", ID: "1", Payload: []byte("x")}))
	require.Equal(t, queue.Ack, handle(queue.Message{Queue: "b", ID: "1", Payload: []byte("y")}))
	require.Equal(t, 2, runs)
	require.Equal(t, queue.Park, handle(queue.Message{Queue: "a", ID: "1", Payload: []byte("y")}))

	amount := queue.Fields("id", "data.amount")
	for _, body := range []string{
		`{"id":"e","data":{"amount":1.0},"pending_webhooks":2}`, `{"pending_webhooks":1,"data":{"amount":1},"id":"e"}`,
	} {
		require.Equal(t, queue.Ack, handle(queue.Message{Queue: "hooks", ID: "e", Payload: amount([]byte(body))}))
	}
	require.Equal(t, 3, runs)
	for _, body := range []string{`{"id":"e","data":{"amount":2}}`, `{"id":"e","data":{}}`, `no JSON`, ``} {
		require.Equal(t, queue.Park, handle(queue.Message{Queue: "hooks", ID: "e", Payload: amount([]byte(body))}), body)
	}
	require.NotEqual(t, queue.Fields("a")([]byte(`{}`)), queue.Fields("b")([]byte(`{}`)))
	require.NotEmpty(t, amount(nil), "an empty body binds too")
	require.Panics(t, func() { queue.Fields() })
	require.Panics(t, func() { queue.Fields("a..b") })
}

// While one consumer has a message in hand, another leaves it alone.
func TestMessageInHand(t *testing.T) {
	guard := newGuard(t)
	m := queue.Message{Queue: "q", ID: "m"}
	got, err := queue.Handle(t.Context(), guard, m, func(ctx context.Context) error {
		got, err := queue.Handle(context.Background(), guard, m, func(context.Context) error { return errors.New("it ran") })
		require.Equal(t, queue.Retry, got)
		require.ErrorIs(t, err, idempotency.ErrInFlight)
		_, ok := idempotency.FromContext(ctx)
		require.True(t, ok)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, queue.Ack, got)
	info := guardtest.Lookup(t, guard, m.Key())
	require.Equal(t, store.Completed, info.State)
}

// A field that finds something in every element of an array makes the payload no longer.
func TestFieldsOfManyElements(t *testing.T) {
	payload := queue.Fields("items.a", "items.b")
	body := func(last string) []byte {
		return []byte(`{"items":[` + strings.Repeat(`{"a":1},`, 10_000) + last + `]}`)
	}
	one := payload(body(`{"a":1,"c":3}`))
	require.Less(t, len(one), 100)
	require.Equal(t, one, payload(body(`{"a":1,"c":4}`)))
	require.NotEqual(t, one, payload(body(`{"a":2}`)))
	require.NotEqual(t, one, payload(body(`{"b":1}`)))
}

// A caller that is called like the scope of a queue neither finds the records of its messages nor stands
// in their way.
func TestCallerIsNoQueue(t *testing.T) {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), func(r *http.Request) (string, error) {
		user, _, _ := r.BasicAuth()
		return user, nil
	})
	require.NoError(t, err)
	requests := &guardtest.Counter{}
	h := guard.Handler(requests)
	message := queue.Message{Queue: "orders", ID: "1"}
	for user, want := range map[string]int{message.Key().Scope: http.StatusForbidden, "queue:orders": http.StatusCreated, "orders": http.StatusCreated} {
		r := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
		r.SetBasicAuth(user, "any")
		r.Header.Set("Idempotency-Key", message.ID)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, "%q", user)
	}
	require.EqualValues(t, 2, requests.Runs.Load())
	runs := 0
	for range 2 {
		todo, err := queue.Handle(t.Context(), guard, message, func(context.Context) error { runs++; return nil })
		require.NoError(t, err)
		require.Equal(t, queue.Ack, todo)
	}
	require.Equal(t, 1, runs)
}
