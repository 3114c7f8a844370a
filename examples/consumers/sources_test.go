//go:build unix

package consumers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/idempotency"
)

// A source has one message. The brokers live in the process of the test, or are a Redis server.
type source struct {
	// send starts a broker, if it is not the Redis server, and sends a message. It returns what the
	// consumers get to know of it, and how many messages are left.
	send func(t *testing.T, redisAddr string) (broker string, left func() int)
	// consume is the program of a consumer.
	consume func(ctx context.Context, broker string, guard *idempotency.Guard) error
	// died, if it is set, has the broker notice that a consumer has died.
	died func(t *testing.T, broker string)
}

var sources = map[string]source{
	"JetStream": {send: sendJetStream, consume: consumeJetStream},
	"Kafka":     {send: sendKafka, consume: consumeKafka},
	"Watermill": {send: sendWatermill, consume: consumeWatermill},
	"asynq":     {send: sendAsynq, consume: consumeAsynq, died: expireAsynq},
	"SQS":       {send: sendSQS, consume: consumeSQS},
}

func sendJetStream(t *testing.T, _ string) (string, func() int) {
	url, js := startNATS(t)
	consumer, err := js.CreateConsumer(t.Context(), "orders", jetstream.ConsumerConfig{
		Durable: "shipping", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * killLease,
	})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders", []byte("order 1"))
	require.NoError(t, err)
	return url, func() int {
		info, err := consumer.Info(t.Context())
		if err != nil {
			return -1
		}
		return info.NumAckPending + int(info.NumPending)
	}
}

func consumeJetStream(ctx context.Context, broker string, guard *idempotency.Guard) error {
	conn, err := nats.Connect(broker)
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, "orders", "shipping")
	if err != nil {
		return err
	}
	ended := make(chan error)
	handler := JetStream(ctx, guard, func(ctx context.Context, _ jetstream.Msg) error { return charge(ctx) },
		func(_ jetstream.Msg, err error) error {
			ended <- err
			return nil
		})
	if _, err = consumer.Consume(func(m jetstream.Msg) { handler(killingMsg{m}) }); err != nil {
		return err
	}
	return <-ended
}

// A killingMsg is a message around whose acknowledgement the process may die.
type killingMsg struct{ jetstream.Msg }

func (m killingMsg) DoubleAck(ctx context.Context) error {
	defer killAt(afterAck)
	return m.Msg.DoubleAck(ctx)
}

func sendKafka(t *testing.T, _ string) (string, func() int) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	broker := cluster.ListenAddrs()[0]
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic("orders"))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("order 1")).FirstErr())
	return broker, func() int {
		fetch := kmsg.NewPtrOffsetFetchRequest()
		group := kmsg.NewOffsetFetchRequestGroup()
		group.Group = "shipping"
		fetch.Groups = append(fetch.Groups, group)
		reply, err := fetch.RequestWith(t.Context(), client)
		if err != nil || len(reply.Groups) != 1 || len(reply.Groups[0].Topics) != 1 {
			return -1
		}
		return 1 - int(reply.Groups[0].Topics[0].Partitions[0].Offset)
	}
}

func consumeKafka(ctx context.Context, broker string, guard *idempotency.Guard) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("shipping"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(2*killLease), kgo.HeartbeatInterval(killLease/5), kgo.WithHooks(commitHook{}))
	if err != nil {
		return err
	}
	return Kafka(ctx, client, guard, func(ctx context.Context, _ *kgo.Record) error { return charge(ctx) },
		func(_ *kgo.Record, err error) error { return err })
}

// commitHook sees the replies of the broker.
type commitHook struct{}

func (commitHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == kmsg.OffsetCommit.Int16() && e2e.Err() == nil {
		killAt(afterAck)
	}
}

func sendWatermill(t *testing.T, redisAddr string) (string, func() int) {
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	t.Cleanup(func() { _ = client.Close() })
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{})
	require.NoError(t, err)
	require.NoError(t, client.XGroupCreateMkStream(t.Context(), "orders", "shipping", "0").Err())
	require.NoError(t, publisher.Publish("orders", message.NewMessage("order 1", []byte("order 1"))))
	return redisAddr, func() int {
		groups, err := client.XInfoGroups(t.Context(), "orders").Result()
		if err != nil || len(groups) != 1 {
			return -1
		}
		if parcels, err := client.XLen(t.Context(), "parcels").Result(); err != nil || parcels == 0 {
			return -1 // what the handler publishes
		}
		return int(groups[0].Pending + groups[0].Lag)
	}
}

func consumeWatermill(ctx context.Context, broker string, guard *idempotency.Guard) error {
	logger := watermill.NopLogger{}
	client := redis.NewClient(&redis.Options{Addr: broker})
	client.AddHook(commandHook(func(cmd redis.Cmder) bool { return cmd.Name() == "xack" }))
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: "shipping", ClaimInterval: killLease / 5, MaxIdleTime: 2 * killLease, NackResendSleep: killLease / 5,
	}, logger)
	if err != nil {
		return err
	}
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, logger)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	router.AddMiddleware(Watermill(guard, func(_ *message.Message, err error) error { return err }))
	router.AddHandler("ship", "orders", subscriber, "parcels", publisher, func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("parcel 1", nil)}, charge(m.Context())
	})
	return router.Run(ctx)
}

// A commandHook chooses the command of Redis that is the acknowledgement.
type commandHook func(redis.Cmder) bool

func (h commandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && h(cmd) {
			killAt(afterAck)
		}
		return err
	}
}

func (h commandHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h commandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func sendAsynq(t *testing.T, redisAddr string) (string, func() int) {
	options := asynq.RedisClientOpt{Addr: redisAddr}
	client, inspector := asynq.NewClient(options), asynq.NewInspector(options)
	t.Cleanup(func() { _, _ = client.Close(), inspector.Close() })
	_, err := client.EnqueueContext(t.Context(), asynq.NewTask("ship", []byte("order 1")), asynq.TaskID("order 1"), asynq.MaxRetry(1000))
	require.NoError(t, err)
	return redisAddr, func() int {
		_, err := inspector.GetTaskInfo("default", "order 1")
		if errors.Is(err, asynq.ErrTaskNotFound) {
			return 0
		}
		return 1
	}
}

// asynqRedis is a client whose commands are seen.
type asynqRedis string

func (addr asynqRedis) MakeRedisClient() any {
	client := redis.NewClient(&redis.Options{Addr: string(addr)})
	client.AddHook(commandHook(func(cmd redis.Cmder) bool { // a task is done, or to be repeated
		return strings.HasPrefix(cmd.Name(), "eval") && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
			text, _ := arg.(string)
			return strings.HasSuffix(text, ":processed")
		})
	}))
	return client
}

func consumeAsynq(ctx context.Context, broker string, guard *idempotency.Guard) error {
	srv := asynq.NewServer(asynqRedis(broker), asynq.Config{
		Concurrency: 1, LogLevel: asynq.FatalLevel, TaskCheckInterval: killLease / 5, DelayedTaskCheckInterval: killLease / 5,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return killLease / 5 },
	})
	handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return charge(ctx) })
	if err := srv.Start(Asynq(guard)(handler)); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// expireAsynq ends the lease of a task. asynq waits for a minute to be sure that its process has died.
func expireAsynq(t *testing.T, broker string) {
	client := redis.NewClient(&redis.Options{Addr: broker})
	defer client.Close()
	require.NoError(t, client.ZAddXX(t.Context(), "asynq:{default}:lease", redis.Z{Score: 0, Member: "order 1"}).Err())
}

// A sqsServer hides a message while somebody has it in hand.
type sqsServer struct {
	mu      sync.Mutex
	message *Delivery
	visible time.Time
}

func (s *sqsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/receive":
		deliveries := []Delivery{}
		if s.message != nil && time.Now().After(s.visible) {
			s.visible = time.Now().Add(2 * killLease)
			deliveries = append(deliveries, *s.message)
		}
		_ = json.NewEncoder(w).Encode(deliveries)
	case "/delete":
		s.message = nil
	case "/wait":
		s.visible = time.Now().Add(killLease / 5)
	}
}

func sendSQS(t *testing.T, _ string) (string, func() int) {
	s := &sqsServer{message: &Delivery{ID: "order 1", Receipt: "r", Body: []byte("order 1")}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL, func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.message == nil {
			return 0
		}
		return 1
	}
}

// An sqsClient is a Queue at an sqsServer.
type sqsClient string

func (c sqsClient) call(ctx context.Context, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(c)+path, bytes.NewReader(nil))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (c sqsClient) Receive(ctx context.Context) (deliveries []Delivery, err error) {
	for err == nil && len(deliveries) == 0 {
		var body []byte
		if body, err = c.call(ctx, "/receive"); err == nil {
			err = json.Unmarshal(body, &deliveries)
		}
		time.Sleep(killLease / 25) // a poll: nobody tells when there is a message
	}
	return deliveries, err
}

func (c sqsClient) Delete(ctx context.Context, _ string) error {
	defer killAt(afterAck)
	_, err := c.call(ctx, "/delete")
	return err
}

func (c sqsClient) Wait(ctx context.Context, _ string, _ time.Duration) error {
	_, err := c.call(ctx, "/wait")
	return err
}

func (c sqsClient) Park(context.Context, Delivery, error) error {
	return errors.New("it is not parked")
}

func consumeSQS(ctx context.Context, broker string, guard *idempotency.Guard) error {
	return SQS(ctx, sqsClient(broker), "orders", guard, func(ctx context.Context, _ Delivery) error { return charge(ctx) })
}
