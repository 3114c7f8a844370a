package idempotency_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/problem"
)

func TestSealerRefusesKeysOfAnotherSize(t *testing.T) {
	for _, key := range [][]byte{nil, make([]byte, 16), make([]byte, 31), make([]byte, 33)} {
		_, err := idempotency.NewSealer(key)
		require.ErrorContains(t, err, "32")
		_, err = idempotency.NewSealer(guardtest.SealingKey(1), key)
		require.ErrorContains(t, err, "32")
		require.NotContains(t, err.Error(), string(guardtest.SealingKey(1)))
	}
}

func TestSealedAnswerIsReplayedAndUnreadableInTheStore(t *testing.T) {
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

// The data that a sealer binds an answer to differs with the key, the tenant and the payload,
// and is the same when the answer is opened.
func TestSealerIsToldWhatTheAnswerBelongsTo(t *testing.T) {
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

// The guard changes nothing that a sealer or a codec has returned, not even behind its end. A sealer may
// return its argument.
func TestSealerAndCodecKeepWhatTheyReturn(t *testing.T) {
	l := &lender{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithSealer(l))
	for range 3 {
		for _, key := range []string{"a", "b", "c"} {
			got, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "s", Value: key}, func(ctx context.Context) (string, error) {
				return idempotency.Step(ctx, "step", func(context.Context) (string, error) { return "value of " + key, nil }, idempotency.WithCodec(l))
			}, idempotency.WithCodec(l))
			require.NoError(t, err)
			require.Equal(t, "value of "+key, got)
		}
	}
	require.NotEmpty(t, l.lent)
	for i, lent := range l.lent {
		require.Equal(t, l.was[i], string(lent))
	}
}

// A lender is a sealer and a codec that notes all memory that it has returned.
type lender struct {
	lent [][]byte
	was  []string
}

func (l *lender) lend(b []byte) []byte {
	all := b[:cap(b)]
	l.lent, l.was = append(l.lent, all), append(l.was, string(all))
	return b
}

func (l *lender) Seal(answer, _ []byte) ([]byte, error) { return l.lend(answer), nil }
func (l *lender) Open(sealed, _ []byte) ([]byte, error) {
	return l.lend(sealed[:len(sealed):len(sealed)]), nil
}

func (l *lender) Marshal(v any) ([]byte, error) {
	return l.lend(append(make([]byte, 0, 64), v.(string)...)), nil
}

func (l *lender) Unmarshal(data []byte, v any) error {
	*v.(*string) = string(data)
	return nil
}

// If a definite answer cannot be sealed, it cannot be recorded, and the handler must not run
// again. The client still gets the answer.
func TestAnswerThatCannotBeSealedHoldsTheKey(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		seen := &guardtest.Events{}
		h := &guardtest.Counter{}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithSealer(guardtest.FailingSealer{}), idempotency.WithObserver(seen.Observe)).Handler(h))
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, got.Status)
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, guardtest.IsHeld)
		require.Contains(t, seen.Kinds(), event.RecordingLost)
	})
}

// A tampering is a server with a store that somebody else can write to.
type tampering struct {
	*guardtest.Server
	store  *guardtest.AlteringStore
	h      *guardtest.Counter
	events *guardtest.Events
}

func newTampering(t *testing.T, opts ...idempotency.Option) *tampering {
	t.Helper()
	s := &tampering{store: &guardtest.AlteringStore{Store: idempotency.NewMemoryStore()}, h: &guardtest.Counter{}, events: &guardtest.Events{}}
	guard := guardtest.NewGuard(t, s.store, append(opts, idempotency.WithObserver(s.events.Observe))...)
	s.Server = guardtest.ServeRecorder(t, guard.Handler(s.h))
	return s
}

// requireUnserved checks that a client does not get the answer stored, put in the place of the
// recorded one, and that the handler does not run.
func (s *tampering) requireUnserved(t *testing.T, c guardtest.Call, stored []byte, what ...any) {
	t.Helper()
	s.store.Alter = func([]byte) []byte { return bytes.Clone(stored) }
	before, reported := s.h.Runs.Load(), s.events.Count(event.Corrupt)
	got := s.Do(t, c)
	if got.Status == http.StatusServiceUnavailable {
		guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
	} else {
		guardtest.RequireProblem(t, got, http.StatusInternalServerError, problem.AnswerUnreadable)
	}
	require.Equal(t, before, s.h.Runs.Load(), what...)
	require.Equal(t, reported+1, s.events.Count(event.Corrupt), what...)
	s.store.Alter = nil
}

// Every bit of a stored answer counts, and every byte must be there, with a sealer and without.
func TestNoBitOfAStoredAnswerCanBeAltered(t *testing.T) {
	race.SkipSequence(t)
	guardtest.Each(t, map[string]idempotency.Option{"plain": nil, "sealed": idempotency.WithSealer(guardtest.NewSealer(t, 1))}, func(t *testing.T, opt idempotency.Option) {
		c := guardtest.Call{Key: "k"}
		s := newTampering(t, opt)
		s.Do(t, c)
		var stored []byte
		s.store.Alter = func(b []byte) []byte { stored = bytes.Clone(b); return b }
		require.True(t, s.Do(t, c).Replayed())
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
		require.True(t, s.Do(t, c).Replayed(), "what is recorded is as it was")
	})
}

// A record that is put in the place of another one answers nobody: not under another key, not
// for another tenant, not for another payload. A sealed one is no more acceptable.
func TestStoredAnswerCannotBeMoved(t *testing.T) {
	guardtest.Each(t, map[string]idempotency.Option{"plain": nil, "sealed": idempotency.WithSealer(guardtest.NewSealer(t, 1))}, func(t *testing.T, opt idempotency.Option) {
		calls := []guardtest.Call{{Key: "a"}, {Key: "a", Body: "other"}, {Key: "b"}, {Key: "a", Tenant: "bob"}, {Key: "a", Tenant: "eve", Body: "other"}, {Key: "c", Path: "/refunds"}}
		for i, to := range calls {
			s := newTampering(t, opt)
			require.Equal(t, http.StatusCreated, s.Do(t, to).Status)
			for j, from := range calls {
				if i != j {
					s.requireUnserved(t, to, guardtest.StoredAnswer(t, from, opt), "%+v for %+v", from, to)
				}
			}
		}
	})
}

// A deployment that rotates the key goes through three kinds of processes. All processes that
// know the key of an answer serve it. One that does not know the key does not run, and tells clients
// to come back: another process can serve them.
func TestSealingKeysAreRotatedUnderWay(t *testing.T) {
	store := idempotency.NewMemoryStore()
	process := func(sealer idempotency.Sealer) (*guardtest.Server, *guardtest.Counter) {
		h := &guardtest.Counter{}
		return guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithSealer(sealer)).Handler(h)), h
	}
	before, _ := process(guardtest.NewSealer(t, 1))
	accepting, _ := process(guardtest.NewSealer(t, 1, 2)) // opens the new one, seals with the old one
	after, _ := process(guardtest.NewSealer(t, 2, 1))
	done, doneRuns := process(guardtest.NewSealer(t, 2))
	first := before.Do(t, guardtest.Call{Key: "old"})
	for _, s := range []*guardtest.Server{before, accepting, after} {
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "old"}))
	}
	guardtest.RequireProblem(t, done.Do(t, guardtest.Call{Key: "old"}), http.StatusServiceUnavailable, problem.StoreUnavailable)

	first = after.Do(t, guardtest.Call{Key: "new"})
	for _, s := range []*guardtest.Server{accepting, after, done} {
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "new"}))
	}
	guardtest.RequireProblem(t, before.Do(t, guardtest.Call{Key: "new"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
	require.Zero(t, doneRuns.Runs.Load())
}

// A run ends without an answer and leaves a step, and the retry meets a process that does not know
// the key of that step. The handler does not run there, and another process goes on from the step.
func TestStepSealedWithAnUnknownKeyIsLeftToAnotherProcess(t *testing.T) {
	store := idempotency.NewMemoryStore()
	var charges, runs atomic.Int64
	process := func(opts ...idempotency.Option) (*guardtest.Server, *idempotency.Guard) {
		guard := guardtest.NewGuard(t, store, opts...)
		return guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int64, error) { return charges.Add(1), nil })
			if err != nil || runs.Add(1) == 1 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))), guard
	}
	knows, _ := process(idempotency.WithSealer(guardtest.NewSealer(t, 1)))
	require.Equal(t, http.StatusInternalServerError, knows.Do(t, guardtest.Call{Key: "k"}).Status)
	for name, opts := range map[string][]idempotency.Option{
		"another key": {idempotency.WithSealer(guardtest.NewSealer(t, 2)), idempotency.WithFailOpen(true)}, "no sealer": nil,
	} {
		s, _ := process(opts...)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.EqualValues(t, 1, runs.Load(), name)
	}
	require.Equal(t, http.StatusOK, knows.Do(t, guardtest.Call{Key: "k"}).Status)
	require.EqualValues(t, 1, charges.Load())
}

// Do tells its caller to come back, too.
func TestValueSealedWithAnUnknownKeyIsLeftToAnotherProcess(t *testing.T) {
	store := idempotency.NewMemoryStore()
	do := func(sealer idempotency.Sealer) error {
		guard := guardtest.NewGuard(t, store, idempotency.WithSealer(sealer))
		_, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "jobs", Value: "k"},
			func(context.Context) (int, error) { return 1, nil })
		return err
	}
	require.NoError(t, do(guardtest.NewSealer(t, 1)))
	err := do(guardtest.NewSealer(t, 2))
	require.ErrorIs(t, err, idempotency.ErrUnreadableHere)
	require.NotErrorIs(t, err, idempotency.ErrCorrupt)
	require.NoError(t, do(guardtest.NewSealer(t, 2, 1)))
}

// Sealing is turned on while processes without a sealer still run. Those cannot read sealed
// answers, and processes with a sealer accept only sealed answers. Both tell clients to come back.
func TestSealingIsTurnedOnUnderWay(t *testing.T) {
	store := idempotency.NewMemoryStore()
	h := &guardtest.Counter{}
	old := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store).Handler(h))
	sealing := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithSealer(guardtest.NewSealer(t, 1))).Handler(h))
	old.Do(t, guardtest.Call{Key: "plain"})
	sealing.Do(t, guardtest.Call{Key: "sealed"})
	for range 2 {
		guardtest.RequireProblem(t, sealing.Do(t, guardtest.Call{Key: "plain"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		guardtest.RequireProblem(t, old.Do(t, guardtest.Call{Key: "sealed"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.True(t, old.Do(t, guardtest.Call{Key: "plain"}).Replayed())
		require.True(t, sealing.Do(t, guardtest.Call{Key: "sealed"}).Replayed())
	}
	require.EqualValues(t, 2, h.Runs.Load())
}

// Every bit of a sealed step counts too, and the step belongs to its record. The guard reports
// an altered step, and does not run it again.
func TestNoBitOfASealedStepCanBeAltered(t *testing.T) {
	store := &guardtest.SpyStore{MemoryStore: idempotency.NewMemoryStore(), Saved: map[string][]byte{}}
	seen := &guardtest.Events{}
	runs, corrupt := 0, 0
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithObserver(seen.Observe)).Handler(
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
	s.Do(t, guardtest.Call{Key: "other"})
	moved := store.Saved["charge"]
	s.Do(t, guardtest.Call{Key: "k"})
	stored := store.Saved["charge"]
	tampered := [][]byte{moved}
	for n := range stored {
		tampered = append(tampered, stored[:n])
		for bit := range 8 {
			altered := bytes.Clone(stored)
			altered[n] ^= 1 << bit
			tampered = append(tampered, altered)
		}
	}
	elsewhere := 0
	for _, b := range tampered {
		store.Tell = func(map[string][]byte) map[string][]byte { return map[string][]byte{"charge": b} }
		if s.Do(t, guardtest.Call{Key: "k"}).Problem.Code == problem.StoreUnavailable {
			elsewhere++ // the name of the key was altered, or the mark of what is sealed
		}
	}
	require.Equal(t, 2, runs)
	require.Equal(t, len(tampered), corrupt+elsewhere)
	require.Equal(t, len(tampered), seen.Count(event.Corrupt), "an operator is not told")
}

// The key and the fingerprint that the sealed forms in tests belong to.
const answerKey = "key"

var answerFingerprint = idempotency.Fingerprint([]byte("0123456789abcdefghijklmnopqrstuv"))

// The seal itself is bound to key and payload, whatever the sealed answer contains.
func TestSealIsBoundToKeyAndPayload(t *testing.T) {
	spy := &spySealer{Sealer: guardtest.NewSealer(t, 1)}
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

// FuzzSealed checks that a guard with a sealer accepts only answers and steps that the sealer
// has made for this record, and that a guard without one accepts nothing that is sealed.
func FuzzSealed(f *testing.F) {
	key := make([]byte, 32) // of this process: what another one has sealed is not to be opened
	_, _ = rand.Read(key)
	sealer, err := idempotency.NewSealer(key)
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := idempotency.Seal(sealer, "body", answerKey, answerFingerprint)
	if err != nil {
		f.Fatal(err)
	}
	a := answer.Answer{Kind: answer.KindKept, Status: http.StatusOK, Body: []byte("body")}
	plain := a.Encode(answerKey, answerFingerprint)
	otherKey, err := idempotency.Seal(sealer, "body", "other", answerFingerprint)
	if err != nil {
		f.Fatal(err)
	}
	for _, stored := range [][]byte{sealed, plain, otherKey, sealed[1:], append([]byte{0x81}, plain...), nil} {
		f.Add(stored)
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		err := idempotency.Unseal(sealer, stored, answerKey, answerFingerprint)
		if bytes.Equal(stored, sealed) {
			require.NoError(t, err)
			return
		}
		if !errors.Is(err, idempotency.ErrCorrupt) && !errors.Is(err, idempotency.ErrUnreadableHere) {
			t.Errorf("an answer that was not sealed: %v", err)
		}
		value, err := idempotency.UnsealStep(sealer, stored, answerKey, answerFingerprint, "step")
		if !errors.Is(err, idempotency.ErrCorrupt) && !errors.Is(err, idempotency.ErrUnreadableHere) || value != nil {
			t.Errorf("a step that was not sealed: %q, %v", value, err)
		}
		if len(stored) > 0 && stored[0]&0x80 != 0 {
			if err := idempotency.Unseal(nil, stored, answerKey, answerFingerprint); !errors.Is(err, answer.ErrVersion) {
				t.Errorf("a sealed answer, read without a sealer: %v", err)
			}
		}
	})
}

// Somebody who can read the store learns nothing. Somebody who can write to it cannot make a
// step return a value of another step, or one that is made up.
func TestSealedSteps(t *testing.T) {
	sealer, err := idempotency.NewSealer(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	type row struct {
		tell func(map[string][]byte) map[string][]byte
		want error
	}
	guardtest.Each(t, map[string]row{
		"untouched": {nil, nil},
		"swapped": {func(steps map[string][]byte) map[string][]byte {
			return map[string][]byte{"charge": steps["ship"], "ship": steps["charge"]}
		}, idempotency.ErrCorrupt},
		"cut":     {func(map[string][]byte) map[string][]byte { return map[string][]byte{"charge": {}} }, idempotency.ErrCorrupt},
		"made up": {func(map[string][]byte) map[string][]byte { return map[string][]byte{"charge": []byte(`v"free"`)} }, idempotency.ErrCorrupt},
	}, func(t *testing.T, c row) {
		store := &guardtest.SpyStore{MemoryStore: idempotency.NewMemoryStore(), Saved: map[string][]byte{}, Tell: c.tell}
		charged := 0
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithSealer(sealer)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				op, _ := idempotency.FromContext(r.Context())
				got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
					charged++
					return "secret", nil
				})
				assert.False(t, op.Attempt() == 2 && !errors.Is(err, c.want), "attempt %d: %q, %v", op.Attempt(), got, err)
				assert.False(t, err == nil && got != "secret", "attempt %d: %q, %v", op.Attempt(), got, err)
				_, _ = idempotency.Step(r.Context(), "ship", func(context.Context) (string, error) { return "sh_1", nil })
				w.WriteHeader(http.StatusInternalServerError)
			})))
		s.Do(t, guardtest.Call{Key: "k"})
		s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, 1, charged)
		require.NotEmpty(t, store.Saved["charge"])
		require.NotContains(t, string(store.Saved["charge"]), "secret")
	})
}

// A guard without the sealer cannot read a sealed step, and above all does not take it for one
// that may run again.
func TestSealedStepIsNoneWithoutTheSealer(t *testing.T) {
	for i := range 256 { // the first byte of what a sealer makes can be any
		sealer := prefixSealer{byte(i)}
		stored, err := idempotency.SealStep(sealer, []byte("v1"), answerKey, idempotency.Fingerprint{}, "charge")
		require.NoError(t, err)
		stepOfUnknownKind(t, string(stored))
	}
}

type prefixSealer [1]byte

func (s prefixSealer) Seal(answer, _ []byte) ([]byte, error) { return append(s[:], answer...), nil }

func (s prefixSealer) Open(sealed, _ []byte) ([]byte, error) { return sealed[1:], nil }
