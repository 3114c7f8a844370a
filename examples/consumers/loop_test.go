package consumers

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/idempotency"
)

// This file tests what happens to the loop around a message: it is shut down, the group goes on
// without it, the publisher behind it fails.

// A failingPublisher fails once.
type failingPublisher struct {
	message.Publisher
	failed atomic.Bool
}

func (p *failingPublisher) Publish(topic string, messages ...*message.Message) error {
	if p.failed.CompareAndSwap(false, true) {
		return errors.New("the broker is away")
	}
	return p.Publisher.Publish(topic, messages...)
}

// What a handler publishes is not lost when its run is recorded and the publication fails.
func TestWatermillPublishesWhatWasNotPublished(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	pubsub := runRouter(t, func(router *message.Router, pubsub *gochannel.GoChannel) {
		router.AddMiddleware(Watermill(newGuard(t), func(*message.Message, error) error { return nil }))
		router.AddHandler("ship", "orders", pubsub, "parcels", &failingPublisher{Publisher: pubsub}, func(*message.Message) ([]*message.Message, error) {
			runs.Add(1)
			parcel := message.NewMessage("parcel", []byte("a box"))
			parcel.Metadata.Set("weight", "7")
			return []*message.Message{parcel}, nil
		})
	})
	parcels, err := pubsub.Subscribe(t.Context(), "parcels")
	require.NoError(t, err)
	require.NoError(t, pubsub.Publish("orders", message.NewMessage("order", nil)))
	select {
	case parcel := <-parcels:
		require.Equal(t, "parcel", parcel.UUID)
		require.Equal(t, "a box", string(parcel.Payload))
		require.Equal(t, "7", parcel.Metadata.Get("weight"))
		parcel.Ack()
	case <-time.After(time.Minute):
		t.Fatal("it was not published")
	}
	require.EqualValues(t, 1, runs.Load())
}

// Router.Close ends the contexts of messages. The message in hand is done all the same.
func TestWatermillDoesNotCutTheMessageInHand(t *testing.T) {
	t.Parallel()
	cut := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithCancel(m.Context())
			cancel()
			m.SetContext(ctx)
			return next(m)
		}
	}
	inHand := make(chan error, 1)
	pubsub := runRouter(t, func(router *message.Router, pubsub *gochannel.GoChannel) {
		router.AddMiddleware(cut, Watermill(newGuard(t), nil))
		router.AddConsumerHandler("ship", "orders", pubsub, func(m *message.Message) error {
			inHand <- m.Context().Err()
			return nil
		})
	})
	require.NoError(t, pubsub.Publish("orders", message.NewMessage("order", nil)))
	require.NoError(t, <-inHand)
}

// Outside a router nobody knows whose message it is, and nothing runs.
func TestWatermillWithoutARouter(t *testing.T) {
	t.Parallel()
	_, err := Watermill(newGuard(t), nil)(func(*message.Message) ([]*message.Message, error) {
		t.Error("it ran")
		return nil, nil
	})(message.NewMessage("order", nil))
	require.ErrorContains(t, err, "no Queue")
}

func startKafka(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("shipping"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic("orders"),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(client.CloseAllowingRebalance)
	return client
}

// evict removes a consumer from its group.
func evict(ctx context.Context, client *kgo.Client) error {
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = "shipping"
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID, _ = client.GroupMetadata()
	leave.MemberID = member.MemberID // of older versions
	leave.Members = append(leave.Members, member)
	_, err := leave.RequestWith(ctx, client)
	return err
}

// A group that goes on without its consumer does not end the loop. The consumer joins again.
func TestKafkaOutlivesItsMembership(t *testing.T) {
	t.Parallel()
	client := startKafka(t, kgo.HeartbeatInterval(50*time.Millisecond))
	for _, what := range []string{"a", "b", "c"} {
		require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord(what)).FirstErr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var runs []string
	err := Kafka(ctx, client, newGuard(t), func(ctx context.Context, r *kgo.Record) error {
		runs = append(runs, string(r.Value))
		switch string(r.Value) {
		case "a": // the group takes this consumer for dead
			return evict(ctx, client)
		case "c":
			cancel()
		}
		return nil
	}, func(*kgo.Record, error) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"a", "b", "c"}, runs)
}

// A loop that is shut down finishes the message in hand: a run that is cut off has an unknown outcome,
// and under Hold somebody would have to look at it after each deployment.
func TestShutdownFinishesTheMessageInHand(t *testing.T) {
	t.Parallel()
	for name, consume := range map[string]func(t *testing.T, ctx context.Context, guard *idempotency.Guard, handle func(context.Context) error) error{
		"Kafka": func(t *testing.T, ctx context.Context, guard *idempotency.Guard, handle func(context.Context) error) error {
			client := startKafka(t)
			for range 2 {
				require.NoError(t, client.ProduceSync(ctx, kgo.StringRecord("order")).FirstErr())
			}
			return Kafka(ctx, client, guard, func(ctx context.Context, _ *kgo.Record) error { return handle(ctx) },
				func(*kgo.Record, error) error { return nil })
		},
		"SQS": func(_ *testing.T, ctx context.Context, guard *idempotency.Guard, handle func(context.Context) error) error {
			q := &batchOfTwo{fakeSQS{newService(), make(chan Delivery, 2)}}
			q.send("one")
			q.send("two")
			return SQS(ctx, q, "orders", guard, func(ctx context.Context, _ Delivery) error { return handle(ctx) })
		},
		"JetStream": func(t *testing.T, ctx context.Context, guard *idempotency.Guard, handle func(context.Context) error) error {
			_, js := startNATS(t)
			consumer, err := js.CreateConsumer(t.Context(), "orders", jetstream.ConsumerConfig{Durable: "shipping", AckPolicy: jetstream.AckExplicitPolicy})
			require.NoError(t, err)
			for range 2 {
				_, err = js.Publish(t.Context(), "orders", []byte("order"))
				require.NoError(t, err)
			}
			messages, err := consumer.Fetch(2)
			require.NoError(t, err)
			handler := JetStream(ctx, guard, func(ctx context.Context, _ jetstream.Msg) error { return handle(ctx) },
				func(jetstream.Msg, error) error { return nil })
			for m := range messages.Messages() {
				handler(m)
			}
			info, err := consumer.Info(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, info.AckFloor.Stream)
			return context.Cause(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRecovery(idempotency.Hold),
				idempotency.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			runs := 0
			err = consume(t, ctx, guard, func(ctx context.Context) error {
				runs++
				stop()
				op, _ := idempotency.FromContext(ctx)
				require.NoError(t, ctx.Err())
				require.True(t, op.Valid())
				return nil
			})
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 1, runs)
		})
	}
}

// batchOfTwo receives two messages at once.
type batchOfTwo struct{ fakeSQS }

func (q *batchOfTwo) Receive(context.Context) ([]Delivery, error) {
	return []Delivery{<-q.messages, <-q.messages}, nil
}
