package idempotency_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

func TestSealerOpensOnlyWhatItSealed(t *testing.T) {
	t.Parallel()
	s := guardtest.NewSealer(t, 1)
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
	old, err := guardtest.NewSealer(t, 1).Seal([]byte("answer"), nil)
	require.NoError(t, err)
	rotated := guardtest.NewSealer(t, 2, 1)
	opened, err := rotated.Open(old, nil)
	require.NoError(t, err)
	require.Equal(t, "answer", string(opened))

	fresh, err := rotated.Seal([]byte("answer"), nil)
	require.NoError(t, err)
	_, err = guardtest.NewSealer(t, 1).Open(fresh, nil)
	require.Error(t, err, "sealed with the former key")
	_, err = guardtest.NewSealer(t, 2).Open(fresh, nil)
	require.NoError(t, err)
}

func TestSealerRefusesKeysOfAnotherSize(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, make([]byte, 16), make([]byte, 31), make([]byte, 33)} {
		_, err := idempotency.NewSealer(key)
		require.ErrorContains(t, err, "32")
		_, err = idempotency.NewSealer(guardtest.SealingKey(1), key)
		require.ErrorContains(t, err, "32")
		require.NotContains(t, err.Error(), string(guardtest.SealingKey(1)))
	}
}

func TestSealedAnswerIsReplayedAndUnreadableInTheStore(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		first, _ := guardtest.Twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/charges/secret")
			_, _ = io.WriteString(w, "secret")
		}, idempotency.WithSealer(guardtest.NewSealer(t, 1)))
		require.Equal(t, "secret", first.Body)
	})
	stored := guardtest.StoredAnswer(t, guardtest.Call{Key: "k"}, idempotency.WithSealer(guardtest.NewSealer(t, 1)))
	require.NotContains(t, string(stored), "charges")
	require.Contains(t, string(guardtest.StoredAnswer(t, guardtest.Call{Key: "k"})), "charges")
}

// What a sealer is to bind an answer to differs with the key, the tenant and the payload,
// and is the same when the answer is opened.
func TestSealerIsToldWhatTheAnswerBelongsTo(t *testing.T) {
	t.Parallel()
	spy := &spySealer{Sealer: guardtest.NewSealer(t, 1)}
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithSealer(spy)).Handler(&guardtest.Counter{}))
	calls := []guardtest.Call{{Key: "a"}, {Key: "b"}, {Key: "a", Tenant: "bob"}, {Key: "c", Body: "other"}}
	for _, c := range calls {
		s.Do(t, c)
		require.True(t, s.Do(t, c).Replayed())
	}
	s = guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithSealer(spy)).Handler(&guardtest.Counter{}))
	calls = append(calls, guardtest.Call{Key: "a", Body: "other"}) // as if the first record had expired
	s.Do(t, calls[len(calls)-1])
	require.True(t, s.Do(t, calls[len(calls)-1]).Replayed())
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
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		seen := &guardtest.Events{}
		h := &guardtest.Counter{}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithSealer(guardtest.FailingSealer{}), idempotency.WithObserver(seen.Observe)).Handler(h))
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, got.Status)
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, guardtest.IsHeld)
		require.Contains(t, seen.Kinds(), idempotency.EventRecordingLost)
	})
}
