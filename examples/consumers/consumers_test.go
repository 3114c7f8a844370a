package consumers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/hibiken/asynq"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/queue"
)

// A service handles messages by what they say: good, flaky (fails once), bad (for good), poison
// (panics each time).
type service struct {
	mu      sync.Mutex
	runs    map[string]int
	effects map[string]int
	parked  map[string]int
	changed chan struct{}
}

func newService() *service {
	return &service{runs: map[string]int{}, effects: map[string]int{}, parked: map[string]int{}, changed: make(chan struct{}, 1)}
}

// handle handles one message.
func (s *service) handle(_ context.Context, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	what := string(body)
	s.runs[what]++
	switch {
	case what == "bad":
		return idempotency.Permanent(errors.New("no such customer"))
	case what == "poison":
		panic("poison")
	case what == "flaky" && s.runs[what] == 1:
		return errors.New("provider is down")
	}
	s.effects[what]++
	return nil
}

func (s *service) park(body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.notify()
	s.parked[string(body)]++
	return nil
}

func (s *service) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// sent are the messages that a test sends: good twice, with one ID.
var sent = []string{"good", "flaky", "good", "bad", "poison", "last"}

// requireDone waits until all messages are done with, and checks what was done.
func (s *service) requireDone(t *testing.T) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		s.mu.Lock()
		done := s.effects["good"] > 0 && s.effects["flaky"] > 0 && s.effects["last"] > 0 && s.parked["bad"] > 0 && s.parked["poison"] > 0
		s.mu.Unlock()
		if done {
			break
		}
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("not done: %+v", s)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, map[string]int{"good": 1, "flaky": 1, "last": 1}, s.effects)
	require.Equal(t, map[string]int{"bad": 1, "poison": 1}, s.parked)
	require.Equal(t, map[string]int{"good": 1, "flaky": 2, "last": 1, "bad": 1, "poison": 2}, s.runs)
}

func newGuard(t *testing.T) *idempotency.Guard {
	t.Helper()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRecovery(idempotency.HoldAfter(2)),
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	return guard
}

func publishMessages(t *testing.T, pubsub *gochannel.GoChannel) {
	t.Helper()
	for _, what := range sent {
		require.NoError(t, pubsub.Publish("orders", message.NewMessage("id-"+what, []byte(what))))
	}
}

func produceOrders(t *testing.T, cluster *kfake.Cluster) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	for _, what := range sent {
		r := &kgo.Record{Topic: "orders", Value: []byte(what), Headers: []kgo.RecordHeader{{Key: "message-id", Value: []byte("id-" + what)}}}
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
}

// startNATS starts a server with a stream of orders.
func startNATS(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	require.True(t, ns.ReadyForConnections(time.Minute))
	conn, err := nats.Connect(ns.ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err = jetstream.New(conn)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders"}, Duplicates: 100 * time.Millisecond})
	require.NoError(t, err)
	return ns.ClientURL(), js
}

func publishOrders(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for _, what := range sent {
		m := nats.NewMsg("orders")
		m.Data = []byte(what)
		m.Header.Set(jetstream.MsgIDHeader, "id-"+what)
		for accepted := false; !accepted; { // the server itself refuses a second one, for a while
			ack, err := js.PublishMsg(t.Context(), m)
			require.NoError(t, err)
			accepted = !ack.Duplicate
		}
	}
}

// startAsynq runs a server whose failures are told, and that tries again at once. It returns a client of it.
func startAsynq(t *testing.T, guard *idempotency.Guard, failed func(*asynq.Task, error), handler asynq.HandlerFunc) *asynq.Client {
	t.Helper()
	redis := asynq.RedisClientOpt{Addr: redistest.Start(t).Addr}
	srv := asynq.NewServer(redis, asynq.Config{
		Concurrency: 1, LogLevel: asynq.FatalLevel, TaskCheckInterval: 100 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
		IsFailure:      AsynqFailed,
		ErrorHandler:   asynq.ErrorHandlerFunc(func(_ context.Context, task *asynq.Task, err error) { failed(task, err) }),
	})
	require.NoError(t, srv.Start(Asynq(guard)(handler)))
	t.Cleanup(srv.Shutdown)
	client := asynq.NewClient(redis)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestAsynq(t *testing.T) {
	t.Parallel()
	s := newService()
	client := startAsynq(t, newGuard(t), func(task *asynq.Task, err error) {
		if errors.Is(err, asynq.SkipRetry) {
			_ = s.park(task.Payload())
		}
	}, func(ctx context.Context, task *asynq.Task) error { return s.handle(ctx, task.Payload()) })
	for _, what := range sent {
		_, err := client.EnqueueContext(t.Context(), asynq.NewTask("ship", []byte(what)), asynq.TaskID("id-"+what), asynq.Retention(time.Hour))
		if !errors.Is(err, asynq.ErrTaskIDConflict) { // asynq itself refuses the second
			require.NoError(t, err)
		}
	}
	s.requireDone(t)
}

// Deliveries that find their task in other hands do not use up its retries.
func TestAsynqTaskInFlight(t *testing.T) {
	t.Parallel()
	guard := newGuard(t)
	begun, leave := make(chan struct{}), make(chan struct{})
	other := make(chan queue.Disposition, 1)
	go func() {
		m := queue.Message{Queue: "asynq:default/ship", ID: "id", Payload: []byte("order")}
		todo, _ := queue.Handle(t.Context(), guard, m, func(context.Context) error {
			close(begun)
			<-leave
			return errors.New("the carrier is away")
		})
		other <- todo
	}()
	<-begun
	refused, done := make(chan error, 1000), make(chan struct{})
	client := startAsynq(t, guard, func(_ *asynq.Task, err error) { refused <- err }, func(context.Context, *asynq.Task) error {
		close(done)
		return nil
	})
	_, err := client.EnqueueContext(t.Context(), asynq.NewTask("ship", []byte("order")), asynq.TaskID("id"), asynq.MaxRetry(1))
	require.NoError(t, err)
	for range 3 {
		require.ErrorIs(t, <-refused, idempotency.ErrInFlight)
	}
	close(leave)
	require.Equal(t, queue.Retry, <-other)
	<-done
}

// fakeSQS hides a message while somebody has it in hand.
type fakeSQS struct {
	*service
	messages chan Delivery
}

func (q *fakeSQS) Receive(ctx context.Context) ([]Delivery, error) {
	select {
	case d := <-q.messages:
		return []Delivery{d}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (q *fakeSQS) Delete(context.Context, string) error { return nil }

func (q *fakeSQS) Wait(_ context.Context, receipt string, _ time.Duration) error {
	q.send(receipt)
	return nil
}

func (q *fakeSQS) Park(_ context.Context, d Delivery, _ error) error { return q.park(d.Body) }

func (q *fakeSQS) send(what string) {
	q.messages <- Delivery{ID: "id-" + what, Receipt: what, Body: []byte(what)}
}

func TestSQS(t *testing.T) {
	t.Parallel()
	q := &fakeSQS{newService(), make(chan Delivery, 100)}
	for _, what := range sent {
		q.send(what)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	guard := newGuard(t)
	go func() {
		ended <- SQS(ctx, q, "orders", guard, func(ctx context.Context, d Delivery) error { return q.handle(ctx, d.Body) })
	}()
	q.requireDone(t)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// Two consumers of one source, with one guard, each handle every message once.
func TestEachConsumerHandlesEachMessage(t *testing.T) {
	t.Parallel()
	consumers := []string{"shipping", "mail"}
	for name, consume := range map[string]func(t *testing.T, guard *idempotency.Guard, services map[string]*service){
		"JetStream": func(t *testing.T, guard *idempotency.Guard, services map[string]*service) {
			_, js := startNATS(t)
			for name, s := range services {
				consumer, err := js.CreateConsumer(t.Context(), "orders", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
				require.NoError(t, err)
				consuming, err := consumer.Consume(JetStream(t.Context(), guard,
					func(ctx context.Context, m jetstream.Msg) error { return s.handle(ctx, m.Data()) },
					func(m jetstream.Msg, _ error) error { return s.park(m.Data()) }))
				require.NoError(t, err)
				t.Cleanup(consuming.Stop)
			}
			publishOrders(t, js)
		},
		"Kafka": func(t *testing.T, guard *idempotency.Guard, services map[string]*service) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			for name, s := range services {
				client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup(name),
					kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
				require.NoError(t, err)
				ended := make(chan struct{})
				t.Cleanup(func() { // when the context of the test has ended
					<-ended
					client.CloseAllowingRebalance()
				})
				go func() {
					defer close(ended)
					_ = Kafka(t.Context(), client, guard,
						func(ctx context.Context, r *kgo.Record) error { return s.handle(ctx, r.Value) },
						func(r *kgo.Record, _ error) error { return s.park(r.Value) })
				}()
			}
			produceOrders(t, cluster)
		},
		"Watermill": func(t *testing.T, guard *idempotency.Guard, services map[string]*service) {
			pubsub := runRouter(t, func(router *message.Router, pubsub *gochannel.GoChannel) {
				router.AddMiddleware(Watermill(guard, func(m *message.Message, _ error) error {
					return services[message.HandlerNameFromCtx(m.Context())].park(m.Payload)
				}))
				for name, s := range services {
					router.AddConsumerHandler(name, "orders", pubsub, func(m *message.Message) error { return s.handle(m.Context(), m.Payload) })
				}
			})
			publishMessages(t, pubsub)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			services := map[string]*service{}
			for _, name := range consumers {
				services[name] = newService()
			}
			consume(t, newGuard(t), services)
			for _, s := range services {
				s.requireDone(t)
			}
		})
	}
}

// runRouter runs a router of Watermill until the test ends.
func runRouter(t *testing.T, add func(*message.Router, *gochannel.GoChannel)) *gochannel.GoChannel {
	t.Helper()
	logger := watermill.NopLogger{}
	pubsub := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10, Persistent: true}, logger)
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	require.NoError(t, err)
	add(router, pubsub)
	go func() { _ = router.Run(t.Context()) }()
	<-router.Running()
	t.Cleanup(func() { require.NoError(t, router.Close()) })
	return pubsub
}
