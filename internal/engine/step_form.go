package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/seal"
)

// maxStepValue is the size of the largest encoded value of a step. A step records what the
// next attempt needs, and that is a reference rather than a document.
const maxStepValue = 64 << 10

// maxStepName is short enough for names to be part of a backend's field names.
const maxStepName = 255

// A Codec encodes and decodes the values of steps and of jobs. It must be safe for concurrent use.
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

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal leaves v at its zero value if there is no data, as in an answer that somebody has given by hand
// to a job without a value.
func (jsonCodec) Unmarshal(data []byte, v any) error {
	if len(data) == 0 {
		return nil
	}
	return json.Unmarshal(data, v)
}

func orJSON(c Codec) Codec {
	if c == nil {
		return jsonCodec{}
	}
	return c
}

// encodeStep returns the stored form of a permanent error, or of the value if there is none.
func encodeStep(codec Codec, value any, permanent error) ([]byte, error) {
	stored := []byte{seal.StepValue}
	if permanent != nil {
		stored[0] = seal.StepError
		stored = append(stored, permanent.Error()...)
	} else {
		data, err := codec.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrStepMisuse, err)
		}
		stored = append(stored, data...)
	}
	if n := len(stored) - 1; n > maxStepValue {
		return nil, fmt.Errorf("%w: result of %d bytes, want at most %d", ErrStepMisuse, n, maxStepValue)
	}
	return stored, nil
}

func decodeStep[T any](codec Codec, name string, data []byte) (T, error) {
	var v T
	if err := codec.Unmarshal(data, &v); err != nil {
		var none T
		return none, fmt.Errorf("%w: cannot decode the recorded value of step %q: %w", ErrStepMisuse, name, err)
	}
	return v, nil
}

// A stepReport is what an [event.Step] says.
type stepReport struct {
	lease  *Lease
	name   string
	start  time.Time
	result event.StepResult
	err    error
}

func (r *stepReport) send() {
	if l := r.lease; l.rules.Reporter.Heard() {
		l.Observe(event.Event{Kind: event.Step, Step: r.name, Result: r.result, Duration: time.Since(r.start), Err: r.err})
	}
}
