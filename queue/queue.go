// Package queue handles messages once: those of Kafka, NATS, SQS, a table of jobs, or of any other
// source that delivers at least once.
//
// [Handle] runs the function of a message under [idempotency.Do], and says what the consumer has to
// do with the message: acknowledge it, leave it to be delivered again, or put it aside for somebody
// to look. So that decision is made in one place, whatever the source calls its three answers.
//
//	switch todo, err := queue.Handle(ctx, guard, message, ship); todo {
//	case queue.Ack:
//		m.Ack()
//	case queue.Retry:
//		m.NakWithDelay(time.Second)
//	case queue.Park:
//		deadLetters.Publish(m, err)
//		m.Ack()
//	}
//
// Give the guard the recovery [idempotency.HoldAfter], so that a message that fails each time, or kills
// its process each time, is parked in the end. Its key is held then, and stays so until somebody
// resolves it. The TTL of the guard must outlast the last delivery of a message, including one from
// a dead-letter queue.
package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"

	"example.com/idempotency"
	"example.com/idempotency/internal/reserved"
)

// A Disposition is what a consumer does with a message.
type Disposition uint8

// The dispositions. The zero Disposition is none of them.
const (
	// Ack: the message is done with, now or before. Acknowledge it.
	Ack Disposition = iota + 1
	// Retry: the message is to be delivered again, later. It was not handled, or nobody knows; or
	// another consumer has it in hand.
	Retry
	// Park: no delivery will do any good until somebody has looked. Put the message aside, in a
	// dead-letter queue for example, and acknowledge it.
	Park
)

// String returns the disposition's name: ack, retry or park; none for the zero Disposition; and the
// number of any other value.
func (d Disposition) String() string {
	switch d {
	case 0:
		return "none"
	case Ack:
		return "ack"
	case Retry:
		return "retry"
	case Park:
		return "park"
	default:
		return "disposition(" + strconv.Itoa(int(d)) + ")"
	}
}

// DispositionOf returns what a result of [idempotency.Do] means for the message that it was called
// for. It is for consumers that call Do themselves, because they want its value.
//
// An [Ack] is no error, and ErrResultNotKept: the work is done. No error of a run whose outcome is
// not final, because its function has said so or a step is uncertain, is a [Park] if the key is held now, and a
// [Retry] otherwise. A Park is also an error marked with
// [idempotency.Permanent], now or by an earlier run; ErrHeld and ErrCorrupt; and ErrKeyReused, because
// another message had the same ID. Everything else is a [Retry]. So is every other error of the
// function, also one that wraps ErrHeld or its like: it speaks of another key, and not of this message.
func DispositionOf(result idempotency.Result, err error) Disposition {
	switch {
	case err == nil && (result.Outcome == idempotency.NotExecuted || result.Outcome == idempotency.Unknown):
		if result.Held {
			return Park
		}
		return Retry
	case err == nil:
		return Ack
	case errors.Is(err, idempotency.ErrPermanent):
		return Park
	case result.Code == "" && !result.Replayed: // Do hands on what the function has returned
		return Retry
	case errors.Is(err, idempotency.ErrResultNotKept):
		return Ack
	case errors.Is(err, idempotency.ErrUnreadableHere): // another process can read it
		return Retry
	case errors.Is(err, idempotency.ErrHeld), errors.Is(err, idempotency.ErrCorrupt), errors.Is(err, idempotency.ErrKeyReused):
		return Park
	default:
		return Retry
	}
}

// A Message is what a function is run for once.
type Message struct {
	// Queue names the source: "orders", for example. Its messages have a scope of their own, so IDs of
	// several sources never meet. Where several consumers handle each message of a source, all of them
	// once, it names the consumer too: "orders/mail". No caller of a guard can have that scope. It is required.
	Queue string
	// ID names the message, the same in each delivery. It has 1 to 255 bytes. It is the ID that the
	// sender gave the message, and not one that a broker gives each delivery. Where the sender gives
	// none, topic, partition and offset name a message of Kafka, and stream and sequence one of
	// JetStream. These begin anew where a topic or a stream of the same name is made again: choose
	// another Queue then.
	ID string
	// Payload binds the ID to what the message says: another payload under the same ID is
	// ErrKeyReused. Usually it is the body. Where deliveries of one message differ, it is [Fields].
	// Empty, it binds the ID to nothing.
	Payload []byte
}

// Key returns the key of the message, for [idempotency.Guard.Lookup] and its like.
func (m Message) Key() idempotency.Key {
	return idempotency.Key{Scope: reserved.Scope("queue", m.Queue), Value: m.ID}
}

// maxID is the longest value of a key.
const maxID = 255

// ErrNoID says that a message has no ID, or none of 1 to 255 bytes. No delivery changes that.
var ErrNoID = errors.New("queue: the message has no ID of 1 to 255 bytes")

// errNotDone is the error of a function that has returned none.
var errNotDone = errors.New("queue: the function returned no error, but the outcome of its run is not final")

// errNoQueue is a mistake of the program. Its messages are good, and wait for the program that is right.
var errNoQueue = errors.New("queue: the message has no Queue")

// A PanicError is a panic of the function of a message. [Handle] returns it in place of the panic,
// which would end the consumer and all that it has in hand.
type PanicError struct {
	// Value is what the function panicked with, and Stack where.
	Value any
	Stack []byte
}

// Error says what the function panicked with. The stack is not part of it.
func (e *PanicError) Error() string {
	return fmt.Sprintf("queue: the function of the message panicked: %v", e.Value)
}

// Unwrap returns the value of the panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Handle runs fn for a message, unless the message is done with already, and says what to do with
// the message. The error says why it is to be delivered again or put aside, and is nil with an [Ack]. It
// is that of fn, a [*PanicError] if fn panicked, one that says so if fn returned none and the outcome is not
// final, [ErrNoID], or one of those that [idempotency.Do] returns without a run. Without a Queue every message is
// a [Retry], and nothing runs.
//
// The rules are those of Do: fn may use [idempotency.Step], [idempotency.DeriveKey] and
// [idempotency.FromContext]; an error that is not marked with [idempotency.Permanent] leaves the
// outcome unknown, and so does a panic. Handle may be called from several goroutines at once.
func Handle(ctx context.Context, g *idempotency.Guard, m Message, fn func(ctx context.Context) error) (Disposition, error) {
	_, todo, err := handle(ctx, g, m, func(ctx context.Context) (done struct{}, err error) { return done, fn(ctx) })
	if todo == Ack {
		err = nil // nobody misses the value that was not kept
	}
	return todo, err
}

// HandleValue is [Handle] for a function with a value, such as the messages that a consumer publishes
// when it has handled one. A later delivery gets the value of the run, so what a process had no time to
// do with it is done then. The value is recorded as JSON. If it was too large to be kept, a later
// delivery is a [Park] with ErrResultNotKept.
func HandleValue[T any](ctx context.Context, g *idempotency.Guard, m Message, fn func(ctx context.Context) (T, error)) (T, Disposition, error) {
	value, todo, err := handle(ctx, g, m, fn)
	if todo == Ack && err != nil {
		todo = Park
	}
	return value, todo, err
}

func handle[T any](ctx context.Context, g *idempotency.Guard, m Message, fn func(ctx context.Context) (T, error)) (value T, todo Disposition, err error) {
	var none T
	switch {
	case m.Queue == "":
		return none, Retry, errNoQueue
	case m.ID == "" || len(m.ID) > maxID:
		return none, Park, ErrNoID
	}
	// A panic goes through Do, for which it is another end of a run than an error: what fn has said of the outcome
	// does not count.
	running := false
	defer func() {
		if !running {
			return
		}
		if p := recover(); p != nil {
			value, todo, err = none, Retry, &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	value, result, err := idempotency.Do(ctx, g, m.Key(), func(ctx context.Context) (T, error) {
		running = true
		value, err := fn(ctx)
		running = false
		return value, err
	}, idempotency.WithPayload(m.Payload))
	if todo = DispositionOf(result, err); todo != Ack && err == nil {
		err = errNotDone
	}
	return value, todo, err
}
