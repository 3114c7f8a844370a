package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// stepServer serves a handler on a memory store and a recorder.
func stepServer(t *testing.T, h http.HandlerFunc, opts ...idempotency.Option) *guardtest.Server {
	t.Helper()
	return guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(h))
}

func TestStepIsNotRunAgainByTheNextAttempt(t *testing.T) {
	type receipt struct{ ID, Note string }
	ran := map[string]int{}
	s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
		got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (receipt, error) {
			ran["charge"]++
			return receipt{"ch_1", strings.Repeat("x", ran["charge"])}, nil
		})
		assert.NoError(t, err)
		assert.Equal(t, (receipt{"ch_1", "x"}), got)
		_, err = idempotency.Step(r.Context(), "ship", func(context.Context) (int, error) {
			ran["ship"]++
			if ran["ship"] < 3 {
				return 0, errors.New("warehouse is closed")
			}
			return 1, nil
		})
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, map[string]int{"charge": 1, "ship": 3}, ran)
}

func TestStepHandsBackTheDecodedValue(t *testing.T) {
	type value struct {
		Kept    string
		Dropped string `json:"-"`
	}
	s := stepServer(t, func(_ http.ResponseWriter, r *http.Request) {
		got, err := idempotency.Step(r.Context(), "s", func(context.Context) (value, error) {
			return value{"kept", "dropped"}, nil
		})
		assert.NoError(t, err)
		assert.Equal(t, (value{Kept: "kept"}), got)
	})
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
}

func TestPermanentErrorIsRecorded(t *testing.T) {
	declined := errors.New("card declined")
	ran, attempts := 0, 0
	s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
		attempts++
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
			ran++
			return 0, idempotency.Permanent(declined)
		})
		assert.ErrorIs(t, err, idempotency.ErrPermanent, "attempt %d", attempts)
		assert.EqualError(t, err, "card declined", "attempt %d", attempts)
		assert.Equal(t, attempts == 1, errors.Is(err, declined), "attempt %d: the function's own error", attempts)
		w.WriteHeader(http.StatusInternalServerError)
	})
	s.Do(t, guardtest.Call{Key: "k"})
	s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, 1, ran)
	require.Equal(t, 2, attempts)
	require.NoError(t, idempotency.Permanent(nil))
}

func TestAtMostOnceStepIsHeldAfterACrash(t *testing.T) {
	guardtest.Each(t, map[string]func(){
		"panic":  func() { panic(http.ErrAbortHandler) },
		"goexit": runtime.Goexit,
	}, func(t *testing.T, crash func()) {
		ran, attempts := 0, 0
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore())
		s := guardtest.ServeHTTP1(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempts++
			_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
				ran++
				crash()
				return 0, nil
			}, idempotency.AtMostOnce())
			assert.ErrorIs(t, err, idempotency.ErrUncertain)
			w.WriteHeader(http.StatusInternalServerError)
		})))
		_, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
		require.Error(t, err)
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		require.Equal(t, 1, ran)
		require.Equal(t, 2, attempts)
	})
}

func TestStepMisuse(t *testing.T) {
	ok := func(context.Context) (int, error) { return 1, nil }
	misused := func(t *testing.T, err error, part string) {
		t.Helper()
		if !errors.Is(err, idempotency.ErrStepMisuse) || !strings.Contains(err.Error(), part) {
			t.Errorf("want misuse %q, got %v", part, err)
		}
	}
	var late context.Context
	s := stepServer(t, func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		late = ctx
		_, err := idempotency.Step(ctx, "", ok)
		misused(t, err, "1 to 255")
		_, err = idempotency.Step(ctx, strings.Repeat("n", 256), ok)
		misused(t, err, "1 to 255")
		_, err = idempotency.Step(ctx, "twice", ok)
		assert.NoError(t, err)
		_, err = idempotency.Step(ctx, "twice", ok)
		misused(t, err, "twice")
		_, err = idempotency.Step(ctx, "outer", func(ctx context.Context) (int, error) {
			return idempotency.Step(ctx, "inner", ok)
		})
		misused(t, err, `inside step "outer"`)
		_, err = idempotency.Step(ctx, "large", func(context.Context) (string, error) {
			return strings.Repeat("x", 64<<10), nil
		})
		misused(t, err, "65538 bytes")
		_, err = idempotency.Step(ctx, "large error", func(context.Context) (int, error) {
			return 0, idempotency.Permanent(errors.New(strings.Repeat("x", 64<<10+1)))
		})
		misused(t, err, "65537 bytes")
		assert.ErrorIs(t, err, idempotency.ErrNotRecorded, "what is too large has happened")
		assert.ErrorContains(t, err, `step "large error"`, "what is too large has happened")
		_, err = idempotency.Step(ctx, "not JSON", func(context.Context) (func(), error) { return nil, nil })
		misused(t, err, "unsupported type")
	})
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	_, err := idempotency.Step(late, "late", ok)
	misused(t, err, "ended")
}

// A recorded value of another type is not half a value, and the step does not run again.
func TestRecordedValueThatCannotBeDecoded(t *testing.T) {
	attempt := 0
	s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
		var err, want error
		if attempt++; attempt == 1 {
			_, err = idempotency.Step(r.Context(), "s", func(context.Context) (string, error) { return "text", nil })
		} else {
			want = idempotency.ErrStepMisuse
			_, err = idempotency.Step(r.Context(), "s", func(context.Context) (int, error) { return 0, errors.New("it has run again") })
		}
		assert.ErrorIs(t, err, want)
		w.WriteHeader(http.StatusInternalServerError)
	})
	s.Do(t, guardtest.Call{Key: "k"})
	s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, 2, attempt)
}

func TestStepsRunInParallel(t *testing.T) {
	const steps = 50
	ran := [steps]int{}
	s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
		guardtest.Together(steps, func(i int) {
			got, err := idempotency.Step(r.Context(), fmt.Sprintf("step %d", i), func(context.Context) (int, error) {
				ran[i]++
				return i * 100, nil
			})
			if err != nil || got != i*100 {
				t.Errorf("step %d: %d, %v", i, got, err)
			}
		})
		w.WriteHeader(http.StatusInternalServerError)
	})
	s.Do(t, guardtest.Call{Key: "k"})
	s.Do(t, guardtest.Call{Key: "k"})
	for i := range ran {
		require.Equal(t, 1, ran[i])
	}
}

func TestStepOutsideOfAnOperationJustRuns(t *testing.T) {
	for range 2 {
		got, err := idempotency.Step(t.Context(), "s", func(context.Context) (string, error) { return "ran", nil })
		require.NoError(t, err)
		require.Equal(t, "ran", got)
	}
}

func TestDerivedKeysAreStableAndDistinct(t *testing.T) {
	seen := map[string]string{}
	attempt := 0
	s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
		attempt++
		for _, purpose := range []string{"", "a", "b", "ab"} {
			name := r.Header.Get("Idempotency-Key") + "/" + purpose
			key := idempotency.DeriveKey(r.Context(), purpose)
			if earlier, ok := seen[name]; ok && earlier != key {
				t.Errorf("%s changed from %s to %s", name, earlier, key)
			}
			seen[name] = key
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	for range 3 {
		s.Do(t, guardtest.Call{Key: "k1"})
		s.Do(t, guardtest.Call{Key: "k2"})
	}
	distinct := map[string]bool{}
	for _, key := range seen {
		require.Len(t, key, 32)
		distinct[key] = true
	}
	require.Len(t, distinct, 8)
	first, second := idempotency.DeriveKey(t.Context(), "a"), idempotency.DeriveKey(t.Context(), "a")
	require.NotEqual(t, first, second, "outside of an operation")
}

// The mark of a step that must not run twice outlasts the program that made it.
func TestMarkOutlivesTheOption(t *testing.T) {
	guardtest.Each(t, map[string][]idempotency.TaskOption{
		"kept":    {idempotency.AtMostOnce()},
		"dropped": nil,
	}, func(t *testing.T, second []idempotency.TaskOption) {
		failed := errors.New("no answer")
		opts := []idempotency.TaskOption{idempotency.AtMostOnce()}
		ran, attempts := 0, 0
		s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
				ran++
				return 0, failed
			}, opts...)
			attempts++
			if want := []error{failed, idempotency.ErrUncertain}[min(attempts, 2)-1]; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			w.WriteHeader(http.StatusBadGateway)
		})
		require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
		opts = second
		require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		require.Equal(t, 1, ran)
	})
}

// An outcome that the handler has found out itself counts more than the mark.
func TestUncertainRunMayDecideItself(t *testing.T) {
	s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
			return 0, errors.New("no answer")
		}, idempotency.AtMostOnce())
		if !errors.Is(err, idempotency.ErrUncertain) {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		guardtest.Op(r.Context()).SetOutcome(idempotency.Final) // the bank was asked
	})
	require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
}

// An operation inside a step is another operation, with steps and keys of its own.
func TestStepMayContainAnotherOperation(t *testing.T) {
	jobs := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	s := stepServer(t, func(_ http.ResponseWriter, r *http.Request) {
		outer := idempotency.DeriveKey(r.Context(), "charge")
		got, err := idempotency.Step(r.Context(), "charge", func(ctx context.Context) (string, error) {
			value, _, err := idempotency.Do(ctx, jobs, invoiceKey, func(ctx context.Context) (string, error) {
				assert.NotEqual(t, outer, idempotency.DeriveKey(ctx, "charge"), "derived keys of two operations collide")
				return idempotency.Step(ctx, "charge", func(context.Context) (string, error) { return "inner", nil })
			})
			return value, err
		})
		assert.NoError(t, err)
		assert.Equal(t, "inner", got)
	})
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
}

func TestStepNeedsAStoreThatCanRecordIt(t *testing.T) {
	guard := guardtest.NewGuard(t, guardtest.PlainStore{Store: idempotency.NewMemoryStore()})
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "s", func(context.Context) (int, error) {
			t.Error("an effect that cannot be recorded")
			return 0, nil
		})
		assert.ErrorIs(t, err, idempotency.ErrStepMisuse)
	})))
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
}

// A step with an unreadable record does not run.
func TestStepOfUnknownKindIsNotRunAgain(t *testing.T) {
	for _, value := range []string{"", "?"} {
		t.Run(value, func(t *testing.T) {
			stepOfUnknownKind(t, value)
		})
	}
}

func stepOfUnknownKind(t *testing.T, value string) {
	t.Helper()
	store := &guardtest.SpyStore{MemoryStore: idempotency.NewMemoryStore(), Saved: map[string][]byte{}}
	store.Tell = func(map[string][]byte) map[string][]byte { return map[string][]byte{"charge": []byte(value)} }
	ran := 0
	seen := &guardtest.Events{}
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithObserver(seen.Observe)).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
			ran++
			return 0, errors.New("failed")
		})
		if op, _ := idempotency.FromContext(r.Context()); op.Attempt() == 2 && !errors.Is(err, idempotency.ErrCorrupt) {
			t.Errorf("error %v", err)
		}
		w.WriteHeader(http.StatusInternalServerError)
	})))
	s.Do(t, guardtest.Call{Key: "k"})
	s.Do(t, guardtest.Call{Key: "k"})
	require.Contains(t, seen.Kinds(), event.Corrupt)
	require.Equal(t, 1, ran)
}

func TestStepsOnRedis(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, store *idempotency.RedisStore, b guardtest.RedisBackend) {
		const lease = time.Minute
		died := make(chan struct{})
		revive := make(chan struct{})
		guard := guardtest.NewGuard(t, store, idempotency.WithLease(lease))
		var mu sync.Mutex
		charges, keys := 0, map[string]bool{}
		s := guardtest.ServeHTTP1(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			mu.Lock()
			keys[idempotency.DeriveKey(r.Context(), "charge")] = true
			mu.Unlock()
			got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				charges++
				return strings.Repeat("ch_1\r\n\x00", 4000), nil
			})
			assert.NoError(t, err, "attempt %d: %d bytes, %v", op.Attempt(), len(got), err)
			assert.Len(t, got, 7*4000, "attempt %d: %d bytes, %v", op.Attempt(), len(got), err)
			switch op.Attempt() {
			case 1: // as good as dead: its lease lapses while it does nothing
				close(died)
				<-revive
				_, err = idempotency.Step(r.Context(), "ship", func(context.Context) (int, error) { return 1, nil })
				assert.Error(t, err, "an overtaken run records a step")
			case 2:
				w.WriteHeader(http.StatusBadGateway) // released
			default:
				w.WriteHeader(http.StatusCreated)
			}
		})))
		first := make(chan guardtest.Reply, 1)
		go func() {
			got, _ := s.Try(context.WithoutCancel(t.Context()), guardtest.Call{Key: "k"})
			first <- got
		}()
		<-died
		b.Advance(t, "idem:", lease)
		require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		close(revive)
		// The first run was told to stop, so its silence is not an answer. Another's is recorded.
		for _, got := range []guardtest.Reply{<-first, s.Do(t, guardtest.Call{Key: "k"})} {
			require.True(t, got.Replayed())
			require.Equal(t, http.StatusCreated, got.Status)
		}
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 1, charges)
		require.Len(t, keys, 1)
	})
}

// A refused connection does not block a step under AtMostOnce for ever: the function has
// proof that nothing happened, and the mark goes.
func TestStepThatWasNotDoneMayBeBegunAgain(t *testing.T) {
	refused := errors.New("connection refused")
	runs := 0
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
		_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
			if runs++; run == 1 {
				return 0, idempotency.NotDone(fmt.Errorf("dialling: %w", refused))
			}
			return 1, nil
		}, idempotency.AtMostOnce())
		assert.False(t, run == 1 && !errors.Is(err, refused), "run %d: %v", run, err)
		assert.False(t, run == 2 && err != nil, "run %d: %v", run, err)
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}}
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
	s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, 2, runs)
	require.NoError(t, idempotency.NotDone(nil))
}
