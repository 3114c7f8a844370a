package seal

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/store"
)

// legible is a sealer whose sealed form shows what it has sealed, and to what it is bound.
type legible struct{}

func (legible) Seal(message, bound []byte) ([]byte, error) {
	return bytes.Join([][]byte{bound, message}, []byte("|")), nil
}

func (legible) Open(sealed, bound []byte) ([]byte, error) {
	message, ok := bytes.CutPrefix(sealed, append(bytes.Clone(bound), '|'))
	if !ok {
		return nil, errors.New("bound to other data")
	}
	return message, nil
}

var formFingerprint = store.Fingerprint([]byte("\x01123456789abcdefghijklmnopqrstuv"))

func TestStoredFormOfWhatIsSealed(t *testing.T) {
	s := &Seals{Sealer: legible{}, KeptKeys: true}
	k := intent.Key{Scope: "alice", Value: "8e03978e-40d5-43e8-bc93-6894a57f9324"}
	a := answer.Answer{Kind: answer.KindKept, Status: http.StatusCreated, Body: []byte("hello")}
	bytesOf := func(b []byte, err error) []byte {
		require.NoError(t, err)
		return b
	}
	formtest.Check(t, "sealed", sealedVersion&^sealedBit,
		formtest.Case{
			Name: "answer", Encode: func() []byte { return bytesOf(s.Answer(&a, k.Name(), formFingerprint)) },
			Decode: func(stored []byte) (any, error) {
				got, err := s.OpenAnswer(stored, k.Name(), formFingerprint, nil)
				return answer.Answer{Kind: got.Kind, Status: got.Status, Body: got.Body}, err
			},
			Want: a, Unstored: []string{"Answer.Header", "Answer.Added", "Answer.Trailer"}, // they are of the form of an answer
		},
		formtest.Case{
			Name: "step", Encode: func() []byte { return bytesOf(s.Step([]byte(`v{"id":1}`), k.Name(), formFingerprint, "charge")) },
			Decode: func(stored []byte) (any, error) {
				return s.OpenStep(stored, k.Name(), formFingerprint, "charge")
			},
			Want: []byte(`v{"id":1}`),
		},
		formtest.Case{
			Name: "key", Encode: func() []byte { return bytesOf(s.Key(k, k.Name())) },
			Decode: func(stored []byte) (any, error) { return s.OpenKey(stored, k.Name()) }, Want: k,
			Unstored: []string{"Key.Record"}, // which stands for a key
		},
	)
}

// What another version has stored is told from what was altered, with a sealer and without.
func TestFormsOfAnotherVersionAreNotDamage(t *testing.T) {
	k := intent.Key{Scope: "alice", Value: "1"}
	for name, sealer := range map[string]Sealer{"plain": nil, "sealed": legible{}} {
		s := &Seals{Sealer: sealer, KeptKeys: true}
		for _, first := range []byte{0, answer.Version + 1, 'x', sealedVersion + 1} {
			stored := append([]byte{first}, "whatever follows"...)
			_, err := s.OpenAnswer(stored, k.Name(), formFingerprint, nil)
			require.ErrorIs(t, err, store.ErrUnreadableHere, "an answer, %s, %#x", name, first)
			_, err = s.OpenStep(stored, k.Name(), formFingerprint, "charge")
			require.ErrorIs(t, err, store.ErrUnreadableHere, "a step, %s, %#x", name, first)
			_, err = s.OpenKey(stored, k.Name())
			require.ErrorIs(t, err, store.ErrUnreadableHere, "a key, %s, %#x", name, first)
		}
		_, err := s.OpenStep(nil, k.Name(), formFingerprint, "charge")
		require.ErrorIs(t, err, store.ErrCorrupt, name)
	}
	s := &Seals{Sealer: legible{}}
	sealed, err := s.Step([]byte("xabc"), k.Name(), formFingerprint, "charge")
	require.NoError(t, err)
	_, err = s.OpenStep(sealed, k.Name(), formFingerprint, "charge")
	require.ErrorIs(t, err, store.ErrUnreadableHere, "a new kind of step in the seal of this version")
}
