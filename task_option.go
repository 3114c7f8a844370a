package idempotency

import "fmt"

// A TaskOption changes how [Do] or [Step] identifies and records a task: [WithCodec] for both,
// [WithPayload] for Do, and [AtMostOnce] for Step. An option that is not for the function is an error that
// wraps [ErrStepMisuse], and nothing runs. A nil TaskOption changes nothing.
type TaskOption interface{ applyTask(*task) }

// A task is what the options of one call say.
type task struct {
	codec      Codec
	payload    []byte
	atMostOnce bool
}

type taskOptionFunc func(*task)

func (f taskOptionFunc) applyTask(t *task) { f(t) }

func taskOf(opts []TaskOption) (t task) {
	for _, o := range opts {
		if o != nil {
			o.applyTask(&t)
		}
	}
	return t
}

func forDo(opts []TaskOption) (task, error) {
	t := taskOf(opts)
	if t.atMostOnce {
		return t, fmt.Errorf("%w: AtMostOnce is an option of Step; Do has WithRecovery(Hold)", ErrStepMisuse)
	}
	return t, nil
}

func forStep(opts []TaskOption) (task, error) {
	t := taskOf(opts)
	if t.payload != nil {
		return t, fmt.Errorf("%w: WithPayload is an option of Do: a step is found by its name", ErrStepMisuse)
	}
	return t, nil
}

// WithPayload binds the key of a [Do] to a message: a call with another message under the same key gets
// [ErrKeyReused], and so does a call without one. By default, and with an empty message, a key
// is bound to none.
func WithPayload(message []byte) TaskOption {
	return taskOptionFunc(func(t *task) { t.payload = message })
}

// WithCodec sets how values are encoded. The default, also for nil, is JSON. Do not change
// the codec while records live that were made with it.
func WithCodec(c Codec) TaskOption {
	return taskOptionFunc(func(t *task) { t.codec = c })
}

// AtMostOnce makes a step run at most once, even if nobody knows whether its effect has
// happened. Step records a mark before the function runs, which costs a second call of the
// store. The mark survives a crash, and an error of the function that is not [Permanent]. A
// later attempt that finds the mark and no result gets [ErrUncertain], even if its program no
// longer uses the option. Only a [Resolution] with the outcome [NotExecuted] removes the mark.
func AtMostOnce() TaskOption {
	return taskOptionFunc(func(t *task) { t.atMostOnce = true })
}

// A Codec encodes and decodes the values of steps and of [Do]. It must be safe for concurrent
// use.
type Codec interface {
	// Marshal encodes a value that a function has returned. The guard does not change what it
	// returns, but reads it after Marshal has returned, and for longer while the store is away. So a
	// codec must not use that memory again.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into v, a pointer to a zero value of the type that the function
	// returns. It must not change data, which may lie in the store's own memory. The value may
	// share that memory only if nobody changes it; otherwise Unmarshal copies.
	Unmarshal(data []byte, v any) error
}
