package seal

import (
	"bytes"
	"errors"
	"fmt"

	"example.com/idempotency/store"
)

// The plain form of a step is one of these bytes, followed by the encoded value or the text of
// the error.
const (
	StepValue   = 'v'
	StepError   = 'e'
	StepStarted = 's' // begun under AtMostOnce, without a result so far
	StepUndone  = 'u' // begun, but found not to have happened
)

// IsStepKind reports whether a byte begins the plain form of a step.
func IsStepKind(b byte) bool {
	return b == StepValue || b == StepError || b == StepStarted || b == StepUndone
}

// Step returns the stored form of a step. A sealed one begins with a byte that is not one
// of the kinds of steps. A guard without the sealer therefore never takes it for the mark of a step
// that may run again.
func (s *Seals) Step(value []byte, key string, fp store.Fingerprint, name string) ([]byte, error) {
	if s.Sealer == nil {
		return value, nil
	}
	sealed, err := s.Sealer.Seal(value, append(bound(key, fp), name...))
	if err != nil {
		return nil, fmt.Errorf("idempotency: sealing a step: %w", err)
	}
	return append([]byte{sealedVersion}, sealed...), nil
}

// OpenStep reads a stored step. With a sealer it accepts nothing that is not sealed.
func (s *Seals) OpenStep(stored []byte, key string, fp store.Fingerprint, name string) ([]byte, error) {
	if len(stored) == 0 {
		return nil, fmt.Errorf("%w: step %q is empty", store.ErrCorrupt, name)
	}
	value := stored
	if s.Sealer != nil {
		sealed, ok := bytes.CutPrefix(stored, []byte{sealedVersion})
		if !ok {
			return nil, fmt.Errorf("%w: step %q is not sealed", store.ErrUnreadableHere, name)
		}
		var err error
		if value, err = s.Sealer.Open(sealed, append(bound(key, fp), name...)); err != nil {
			return nil, fmt.Errorf("step %q: %w", name, opened(err))
		}
	}
	if len(value) == 0 || !IsStepKind(value[0]) { // it is sealed, or in the form of another version
		return nil, fmt.Errorf("%w: step %q is of an unknown kind", store.ErrUnreadableHere, name)
	}
	return value, nil
}

// UnreadableStep returns the error of a step that another process can read and this one cannot.
func (s *Seals) UnreadableStep(rec store.Record, key string) error {
	for name, stored := range rec.Steps {
		if _, err := s.OpenStep(stored, key, rec.Fingerprint, name); errors.Is(err, store.ErrUnreadableHere) {
			return err
		}
	}
	return nil
}
