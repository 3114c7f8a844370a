package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// A tampering is a server on whose store somebody else can write.
type tampering struct {
	*server
	store  *alteringStore
	h      *counter
	events *events
}

func newTampering(t *testing.T, opts ...idempotency.Option) *tampering {
	t.Helper()
	s := &tampering{store: &alteringStore{Store: idempotency.NewMemoryStore()}, h: &counter{}, events: &events{}}
	guard := newGuard(t, s.store, append(opts, idempotency.WithObserver(s.events.observe))...)
	s.server = serveRecorder(t, guard.Handler(s.h))
	return s
}

// requireUnserved checks that nobody is served a record in place of the recorded one, and
// that the handler does not run over it.
func (s *tampering) requireUnserved(t *testing.T, c call, stored []byte, what ...any) {
	t.Helper()
	s.store.alter = func([]byte) []byte { return bytes.Clone(stored) }
	before, reported := s.h.runs.Load(), countKind(s.events, idempotency.EventCorrupt)
	got := s.do(t, c)
	if got.status == http.StatusServiceUnavailable {
		requireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
	} else {
		requireProblem(t, got, http.StatusInternalServerError, problem.AnswerUnreadable)
	}
	require.Equal(t, before, s.h.runs.Load(), what...)
	require.Equal(t, reported+1, countKind(s.events, idempotency.EventCorrupt), what...)
	s.store.alter = nil
}

// Every single bit of a stored answer counts, and every byte has to be there, with a
// sealer and without.
func TestNoBitOfAStoredAnswerCanBeAltered(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]idempotency.Option{"plain": nil, "sealed": idempotency.WithSealer(newSealer(t, 1))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := call{key: "k"}
			s := newTampering(t, opt)
			s.do(t, c)
			var stored []byte
			s.store.alter = func(b []byte) []byte { stored = bytes.Clone(b); return b }
			require.True(t, s.do(t, c).replayed())
			for n := range stored {
				s.requireUnserved(t, c, stored[:n], "cut to %d bytes", n)
				for bit := range 8 {
					altered := bytes.Clone(stored)
					altered[n] ^= 1 << bit
					s.requireUnserved(t, c, altered, "bit %d of byte %d", bit, n)
				}
			}
			s.requireUnserved(t, c, append(bytes.Clone(stored), 0), "longer")
			s.requireUnserved(t, c, append(bytes.Clone(stored), stored...), "twice")
			require.True(t, s.do(t, c).replayed(), "what is recorded is as it was")
		})
	}
}

// A record that is put in the place of another one answers nobody: not under another key,
// not for another tenant, not for another payload. Sealing does not make it any more
// acceptable.
func TestStoredAnswerCannotBeMoved(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]idempotency.Option{"plain": nil, "sealed": idempotency.WithSealer(newSealer(t, 1))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := []call{{key: "a"}, {key: "a", body: "other"}, {key: "b"}, {key: "a", tenant: "bob"}, {key: "a", tenant: "eve", body: "other"}, {key: "c", path: "/refunds"}}
			for i, to := range calls {
				s := newTampering(t, opt)
				require.Equal(t, http.StatusCreated, s.do(t, to).status)
				for j, from := range calls {
					if i != j {
						s.requireUnserved(t, to, storedAnswer(t, from, opt), "%+v for %+v", from, to)
					}
				}
			}
		})
	}
}

// A deployment that rotates the key goes through three kinds of processes. All that know
// the key of an answer serve it; one that does not serves nobody, and does not run.
func TestSealingKeysAreRotatedUnderWay(t *testing.T) {
	t.Parallel()
	store := idempotency.NewMemoryStore()
	process := func(sealer idempotency.Sealer) (*server, *counter) {
		h := &counter{}
		return serveRecorder(t, newGuard(t, store, idempotency.WithSealer(sealer)).Handler(h)), h
	}
	before, _ := process(newSealer(t, 1))
	accepting, _ := process(newSealer(t, 1, 2)) // opens the new one, seals with the old one
	after, _ := process(newSealer(t, 2, 1))
	done, doneRuns := process(newSealer(t, 2))
	first := before.do(t, call{key: "old"})
	for _, s := range []*server{before, accepting, after} {
		requireReplay(t, first, s.do(t, call{key: "old"}))
	}
	requireProblem(t, done.do(t, call{key: "old"}), http.StatusInternalServerError, problem.AnswerUnreadable)

	first = after.do(t, call{key: "new"})
	for _, s := range []*server{accepting, after, done} {
		requireReplay(t, first, s.do(t, call{key: "new"}))
	}
	requireProblem(t, before.do(t, call{key: "new"}), http.StatusInternalServerError, problem.AnswerUnreadable)
	require.Zero(t, doneRuns.runs.Load())
}

// Sealing is turned on while processes without it still run. They cannot read what is
// sealed and say that the others can; those with a sealer take nothing that is not.
func TestSealingIsTurnedOnUnderWay(t *testing.T) {
	t.Parallel()
	store := idempotency.NewMemoryStore()
	h := &counter{}
	old := serveRecorder(t, newGuard(t, store).Handler(h))
	sealing := serveRecorder(t, newGuard(t, store, idempotency.WithSealer(newSealer(t, 1))).Handler(h))
	old.do(t, call{key: "plain"})
	sealing.do(t, call{key: "sealed"})
	for range 2 {
		requireProblem(t, sealing.do(t, call{key: "plain"}), http.StatusInternalServerError, problem.AnswerUnreadable)
		requireProblem(t, old.do(t, call{key: "sealed"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.True(t, old.do(t, call{key: "plain"}).replayed())
		require.True(t, sealing.do(t, call{key: "sealed"}).replayed())
	}
	require.EqualValues(t, 2, h.runs.Load())
}

// Of a sealed step, too, every bit counts, and it belongs to its record. What is wrong
// with one is reported, and it is not run again.
func TestNoBitOfASealedStepCanBeAltered(t *testing.T) {
	t.Parallel()
	store := &spyStore{MemoryStore: idempotency.NewMemoryStore(), saved: map[string][]byte{}}
	seen := &events{}
	runs, corrupt := 0, 0
	s := serveRecorder(t, newGuard(t, store, idempotency.WithSealer(newSealer(t, 1)), idempotency.WithObserver(seen.observe)).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
				runs++
				return "ch_1", nil
			})
			if errors.Is(err, idempotency.ErrCorrupt) {
				corrupt++
			}
			w.WriteHeader(http.StatusInternalServerError)
		})))
	s.do(t, call{key: "other"})
	moved := store.saved["charge"]
	s.do(t, call{key: "k"})
	stored := store.saved["charge"]
	tampered := [][]byte{moved}
	for n := range stored {
		tampered = append(tampered, stored[:n])
		for bit := range 8 {
			altered := bytes.Clone(stored)
			altered[n] ^= 1 << bit
			tampered = append(tampered, altered)
		}
	}
	for _, b := range tampered {
		store.tell = func(map[string][]byte) map[string][]byte { return map[string][]byte{"charge": b} }
		s.do(t, call{key: "k"})
	}
	require.Equal(t, 2, runs)
	require.Equal(t, len(tampered), corrupt)
	require.Equal(t, corrupt, countKind(seen, idempotency.EventCorrupt), "an operator is not told")
}

// The key and the fingerprint that the sealed forms in tests belong to.
const answerKey = "key"

var answerFingerprint = idempotency.Fingerprint([]byte("0123456789abcdefghijklmnopqrstuv"))

// The seal itself is bound to key and payload, and does not leave that to what is inside.
func TestSealIsBoundToKeyAndPayload(t *testing.T) {
	t.Parallel()
	spy := &spySealer{Sealer: newSealer(t, 1)}
	other := answerFingerprint
	other[31]++
	for _, key := range []string{answerKey, "other"} {
		for _, fp := range []idempotency.Fingerprint{answerFingerprint, other} {
			_, err := idempotency.Seal(spy, "body", key, fp)
			require.NoError(t, err)
			for _, step := range []string{"charge", "ship"} {
				stored, err := idempotency.SealStep(spy, []byte("v1"), key, fp, step)
				require.NoError(t, err)
				_, err = idempotency.UnsealStep(spy, stored, key, fp, step)
				require.NoError(t, err)
			}
		}
	}
	slices.Sort(spy.sealed)
	require.Len(t, slices.Compact(spy.sealed), 12)
}
