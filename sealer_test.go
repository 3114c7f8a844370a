package idempotency_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

func sealingKey(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

func newSealer(t *testing.T, current byte, former ...byte) idempotency.Sealer {
	t.Helper()
	keys := make([][]byte, 0, len(former))
	for _, n := range former {
		keys = append(keys, sealingKey(n))
	}
	s, err := idempotency.NewSealer(sealingKey(current), keys...)
	require.NoError(t, err)
	return s
}

func TestSealerOpensOnlyWhatItSealed(t *testing.T) {
	t.Parallel()
	s := newSealer(t, 1)
	for _, answer := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("long "), 1000)} {
		sealed, err := s.Seal(answer, []byte("bound"))
		require.NoError(t, err)
		opened, err := s.Open(sealed, []byte("bound"))
		require.NoError(t, err)
		require.Equal(t, string(answer), string(opened))

		again, err := s.Seal(answer, []byte("bound"))
		require.NoError(t, err)
		require.NotEqual(t, sealed, again, "a nonce was used twice")

		_, err = s.Open(sealed, []byte("other"))
		require.Error(t, err)
		for n := range min(len(sealed), 100) {
			_, err = s.Open(sealed[:n], []byte("bound"))
			require.Error(t, err, "cut to %d bytes", n)
			altered := bytes.Clone(sealed)
			altered[n] ^= 1
			_, err = s.Open(altered, []byte("bound"))
			require.Error(t, err, "byte %d altered", n)
		}
	}
}

func TestSealerRotatesKeys(t *testing.T) {
	t.Parallel()
	old, err := newSealer(t, 1).Seal([]byte("answer"), nil)
	require.NoError(t, err)
	rotated := newSealer(t, 2, 1)
	opened, err := rotated.Open(old, nil)
	require.NoError(t, err)
	require.Equal(t, "answer", string(opened))

	fresh, err := rotated.Seal([]byte("answer"), nil)
	require.NoError(t, err)
	_, err = newSealer(t, 1).Open(fresh, nil)
	require.Error(t, err, "sealed with the former key")
	_, err = newSealer(t, 2).Open(fresh, nil)
	require.NoError(t, err)
}

func TestSealerRefusesKeysOfAnotherSize(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, make([]byte, 16), make([]byte, 31), make([]byte, 33)} {
		_, err := idempotency.NewSealer(key)
		require.ErrorContains(t, err, "32")
		_, err = idempotency.NewSealer(sealingKey(1), key)
		require.ErrorContains(t, err, "32")
		require.NotContains(t, err.Error(), string(sealingKey(1)))
	}
}

func TestSealedAnswerIsReplayedAndUnreadableInTheStore(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		first, _ := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/charges/secret")
			_, _ = io.WriteString(w, "secret")
		}, idempotency.WithSealer(newSealer(t, 1)))
		require.Equal(t, "secret", first.body)
	})
	stored := storedAnswer(t, call{key: "k"}, idempotency.WithSealer(newSealer(t, 1)))
	require.NotContains(t, string(stored), "charges")
	require.Contains(t, string(storedAnswer(t, call{key: "k"})), "charges")
}

// What a sealer is to bind an answer to differs with the key, the tenant and the payload,
// and is the same when the answer is opened.
func TestSealerIsToldWhatTheAnswerBelongsTo(t *testing.T) {
	t.Parallel()
	spy := &spySealer{Sealer: newSealer(t, 1)}
	s := serveRecorder(t, newGuard(t, idempotency.NewMemoryStore(), idempotency.WithSealer(spy)).Handler(&counter{}))
	calls := []call{{key: "a"}, {key: "b"}, {key: "a", tenant: "bob"}, {key: "c", body: "other"}}
	for _, c := range calls {
		s.do(t, c)
		require.True(t, s.do(t, c).replayed())
	}
	s = serveRecorder(t, newGuard(t, idempotency.NewMemoryStore(), idempotency.WithSealer(spy)).Handler(&counter{}))
	calls = append(calls, call{key: "a", body: "other"}) // as if the first record had expired
	s.do(t, calls[len(calls)-1])
	require.True(t, s.do(t, calls[len(calls)-1]).replayed())
	require.Equal(t, spy.sealed, spy.opened)
	slices.Sort(spy.sealed)
	require.Len(t, slices.Compact(spy.sealed), len(calls))
	for i, bound := range spy.sealed {
		require.NotEmpty(t, bound, i)
	}
}

type spySealer struct {
	idempotency.Sealer
	sealed, opened []string
}

func (s *spySealer) Seal(answer, bound []byte) ([]byte, error) {
	s.sealed = append(s.sealed, string(bound))
	return s.Sealer.Seal(answer, bound)
}

func (s *spySealer) Open(sealed, bound []byte) ([]byte, error) {
	s.opened = append(s.opened, string(bound))
	return s.Sealer.Open(sealed, bound)
}

// A definite answer that cannot be sealed cannot be recorded, and must not be run again
// either. The client still gets it.
func TestAnswerThatCannotBeSealedHoldsTheKey(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		seen := &events{}
		h := &counter{}
		s := serve(newGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithSealer(failingSealer{}), idempotency.WithObserver(seen.observe)).Handler(h))
		got := s.do(t, call{key: "k"})
		require.Equal(t, http.StatusCreated, got.status)
		requireFate(t, s, h, call{key: "k"}, isHeld)
		require.Contains(t, seen.kinds(), idempotency.EventRecordingLost)
	})
}

type failingSealer struct{ idempotency.Sealer }

func (failingSealer) Seal([]byte, []byte) ([]byte, error) { return nil, errors.New("no key today") }
