package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/engine/seal"
	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/store"
)

// The first byte is the version of a step, and its kind.
func TestStoredFormOfAStep(t *testing.T) {
	var plain seal.Seals
	of := func(name string, value any, permanent error, want string) formtest.Case {
		return formtest.Case{
			Name: name, Want: []byte(want),
			Encode: func() []byte {
				encoded, err := encodeStep(orJSON(nil), value, permanent)
				require.NoError(t, err)
				stored, err := plain.Step(encoded, "key", store.Fingerprint{}, "charge")
				require.NoError(t, err)
				return stored
			},
			Decode: func(stored []byte) (any, error) { return plain.OpenStep(stored, "key", store.Fingerprint{}, "charge") },
		}
	}
	mark := func(name string, kind byte) formtest.Case {
		c := of(name, nil, nil, string(kind))
		c.Encode = func() []byte { return []byte{kind} }
		return c
	}
	formtest.Check(t, "step", 1,
		of("value", map[string]int{"charge": 1}, nil, `v{"charge":1}`),
		of("error", nil, errors.New("no such account"), "eno such account"),
		mark("started", seal.StepStarted),
		mark("undone", seal.StepUndone),
	)
}
