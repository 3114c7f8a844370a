package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A run that may have been overtaken begins no further effect, and what it answers
// because of that is not the answer to the request.
func TestStepIsNotBegunWithoutALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := guardtest.NewStepFaultStore()
		guard := guardtest.NewGuard(t, store, idempotency.WithLease(3*time.Second))
		ran := 0
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			if op.Attempt() == 1 {
				store.On("renew", guardtest.Always(guardtest.Hang))
				time.Sleep(4 * time.Second)
				store.Heal()
			}
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
				ran++
				return 0, nil
			})
			if errors.Is(err, idempotency.ErrLeaseLost) {
				if cause := context.Cause(r.Context()); !errors.Is(cause, idempotency.ErrLeaseLost) {
					t.Errorf("the run is not told: %v", cause)
				}
				w.WriteHeader(http.StatusConflict)
			}
		})))
		require.Equal(t, http.StatusConflict, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Zero(t, ran)
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, ran)
	})
}

// A process that was paused finds its lease over before its own renewals do. Here they
// are late because they are being reported.
func TestStepNoticesFirstThatTheLeaseIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := guardtest.NewStepFaultStore()
		store.On("renew", guardtest.Always(guardtest.Refuse))
		guard := guardtest.NewGuard(t, store, idempotency.WithLease(3*time.Second), idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
			if e.Op == "renew" {
				time.Sleep(10 * time.Second)
			}
		}))
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if op, _ := idempotency.FromContext(r.Context()); op.Attempt() == 1 {
				time.Sleep(4 * time.Second)
			}
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
			if errors.Is(err, idempotency.ErrLeaseLost) {
				if cause := context.Cause(r.Context()); !errors.Is(cause, idempotency.ErrLeaseLost) {
					t.Errorf("the run is not told: %v", cause)
				}
				w.WriteHeader(http.StatusConflict) // which must not become the answer
			}
		})))
		require.Equal(t, http.StatusConflict, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	})
}

func TestStepThatCannotBeRecordedSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := guardtest.NewStepFaultStore()
		guard := guardtest.NewGuard(t, store)
		ran := 0
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			store.On("step", guardtest.Always(guardtest.Refuse))
			got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
				ran++
				return "ch_1", nil
			})
			var lost *idempotency.NotRecordedError
			if !errors.As(err, &lost) || lost.Step != "charge" || !errors.Is(err, guardtest.ErrDown) || got != "ch_1" {
				t.Errorf("%q, %v", got, err)
			}
			_, err = idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
				t.Error("a step at most once runs without its mark")
				return 0, nil
			}, idempotency.AtMostOnce())
			if !errors.Is(err, guardtest.ErrDown) || errors.As(err, &lost) {
				t.Errorf("error %v", err)
			}
			w.WriteHeader(http.StatusInternalServerError)
		})))
		s.Do(t, guardtest.Call{Key: "k"})
		s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, 2, ran, "what is not recorded is run again")
	})
}

// A store that comes back in time, and a reply that is lost, go unnoticed.
func TestStepIsRecordedWhenTheStoreComesBack(t *testing.T) {
	t.Parallel()
	for name, hit := range map[string]guardtest.Fault{"refused": guardtest.Refuse, "reply lost": guardtest.LoseReply, "hangs": guardtest.Hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := guardtest.NewStepFaultStore()
				store.On("step", guardtest.First(1, hit))
				s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithLease(3*time.Second)).Handler(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
						if err != nil || got != "ch_1" {
							t.Errorf("%q, %v", got, err)
						}
					})))
				require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Equal(t, 2, store.Count("step"))
			})
		})
	}
}

// A run that was overtaken without noticing must not record over its successor.
func TestStepOfAnOvertakenRunIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := guardtest.NewStepFaultStore()
		guard := guardtest.NewGuard(t, store, idempotency.WithLease(3*time.Second))
		entered := make(chan struct{})
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
				if op.Attempt() == 1 {
					store.On("renew", guardtest.Always(guardtest.Hang))
					close(entered)
					time.Sleep(10 * time.Second)
				}
				return op.Attempt(), nil
			})
			var lost *idempotency.NotRecordedError
			if op.Attempt() == 1 && (!errors.As(err, &lost) || !errors.Is(err, idempotency.ErrNotOwner)) {
				t.Errorf("overtaken: %d, %v", got, err)
			}
			if op.Attempt() == 2 {
				store.Heal()
				if err != nil || got != 2 {
					t.Errorf("%d, %v", got, err)
				}
				time.Sleep(20 * time.Second)
			}
			w.WriteHeader(http.StatusCreated)
		})))
		done := make(chan guardtest.Reply)
		go func() { done <- s.Attempt(t, guardtest.Call{Key: "k"}) }()
		<-entered
		time.Sleep(5 * time.Second)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	})
}

// The mark of a step that must not run twice outlasts the program that made it.
func TestMarkOutlivesTheOption(t *testing.T) {
	t.Parallel()
	for name, second := range map[string][]idempotency.StepOption{
		"kept":    {idempotency.AtMostOnce()},
		"dropped": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := errors.New("no answer")
			opts := []idempotency.StepOption{idempotency.AtMostOnce()}
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
}

// What a handler has found out by itself counts more than the mark.
func TestUncertainRunMayDecideItself(t *testing.T) {
	t.Parallel()
	s := stepServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
			return 0, errors.New("no answer")
		}, idempotency.AtMostOnce())
		if !errors.Is(err, idempotency.ErrUncertain) {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		op, _ := idempotency.FromContext(r.Context())
		op.SetOutcome(idempotency.Final) // the bank was asked
	})
	require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
}

// An operation inside a step is another operation, with steps and keys of its own.
func TestStepMayContainAnotherOperation(t *testing.T) {
	t.Parallel()
	jobs := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	s := stepServer(t, func(_ http.ResponseWriter, r *http.Request) {
		outer := idempotency.DeriveKey(r.Context(), "charge")
		got, err := idempotency.Step(r.Context(), "charge", func(ctx context.Context) (string, error) {
			value, _, err := idempotency.Do(ctx, jobs, invoiceKey, func(ctx context.Context) (string, error) {
				if idempotency.DeriveKey(ctx, "charge") == outer {
					t.Error("derived keys of two operations collide")
				}
				return idempotency.Step(ctx, "charge", func(context.Context) (string, error) { return "inner", nil })
			})
			return value, err
		})
		if err != nil || got != "inner" {
			t.Errorf("%q, %v", got, err)
		}
	})
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
}

func TestStepNeedsAStoreThatCanRecordIt(t *testing.T) {
	t.Parallel()
	guard := guardtest.NewGuard(t, guardtest.PlainStore{Store: idempotency.NewMemoryStore()})
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "s", func(context.Context) (int, error) {
			t.Error("an effect that cannot be recorded")
			return 0, nil
		})
		if !errors.Is(err, idempotency.ErrStepMisuse) {
			t.Errorf("error %v", err)
		}
	})))
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
}

// Whoever can read the store learns nothing, and whoever can write to it cannot make a
// step return what it did not: not a value of another step, nor one that is made up.
func TestSealedSteps(t *testing.T) {
	t.Parallel()
	sealer, err := idempotency.NewSealer(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		tell func(map[string][]byte) map[string][]byte
		want error
	}{
		"untouched": {nil, nil},
		"swapped": {func(steps map[string][]byte) map[string][]byte {
			return map[string][]byte{"charge": steps["ship"], "ship": steps["charge"]}
		}, idempotency.ErrCorrupt},
		"cut":     {func(map[string][]byte) map[string][]byte { return map[string][]byte{"charge": {}} }, idempotency.ErrCorrupt},
		"made up": {func(map[string][]byte) map[string][]byte { return map[string][]byte{"charge": []byte(`v"free"`)} }, idempotency.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &guardtest.SpyStore{MemoryStore: idempotency.NewMemoryStore(), Saved: map[string][]byte{}, Tell: c.tell}
			charged := 0
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithSealer(sealer)).Handler(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					op, _ := idempotency.FromContext(r.Context())
					got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
						charged++
						return "secret", nil
					})
					if op.Attempt() == 2 && !errors.Is(err, c.want) || err == nil && got != "secret" {
						t.Errorf("attempt %d: %q, %v", op.Attempt(), got, err)
					}
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
}

// What cannot be understood is not run over.
func TestStepOfUnknownKindIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "?"} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
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
	require.Contains(t, seen.Kinds(), idempotency.EventCorrupt)
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
			if err != nil || len(got) != 7*4000 {
				t.Errorf("attempt %d: %d bytes, %v", op.Attempt(), len(got), err)
			}
			switch op.Attempt() {
			case 1: // as good as dead: its lease lapses while it does nothing
				close(died)
				<-revive
				_, err = idempotency.Step(r.Context(), "ship", func(context.Context) (int, error) { return 1, nil })
				if err == nil {
					t.Error("an overtaken run records a step")
				}
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
		// The first run was told to stop, and its silence counts for nobody.
		guardtest.RequireProblem(t, <-first, http.StatusConflict, problem.InFlight)
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, http.StatusCreated, again.Status)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 1, charges)
		require.Len(t, keys, 1)
	})
}

// A step that the store refuses says that the run has lost its claim, and nothing waits for
// a renewal to find out.
func TestStepThatIsRefusedEndsTheRun(t *testing.T) {
	t.Parallel()
	store := guardtest.NewStepFaultStore()
	store.On("step", guardtest.First(1, guardtest.FailWith(idempotency.ErrNotOwner)))
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		done := func(context.Context) (int, error) { return 1, nil }
		_, err := idempotency.Step(r.Context(), "a", done)
		if !errors.Is(err, idempotency.ErrNotOwner) {
			t.Error(err)
		}
		if cause := context.Cause(r.Context()); !errors.Is(cause, idempotency.ErrLeaseLost) {
			t.Errorf("the run is not told: %v", cause)
		}
		if _, err = idempotency.Step(r.Context(), "b", done); !errors.Is(err, idempotency.ErrLeaseLost) {
			t.Errorf("another effect is begun: %v", err)
		}
		panic(http.ErrAbortHandler)
	})))
	require.Panics(t, func() { _, _ = s.Try(t.Context(), guardtest.Call{Key: "k"}) })
}

// A sealed step says nothing to a guard without its sealer: least of all that it may be run
// again.
func TestSealedStepIsNoneWithoutTheSealer(t *testing.T) {
	t.Parallel()
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
