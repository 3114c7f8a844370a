package runtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A handler does not wait for a step that the store keeps waiting, and answers. The run is judged by what has begun until
// then, so nothing begins afterwards.
func TestNoStepBeginsAfterItsRun(t *testing.T) {
	const slow = 50 * time.Millisecond
	for name, opts := range map[string][]idempotency.TaskOption{
		"at most once": {idempotency.AtMostOnce()}, "plain": nil, "found": nil,
	} {
		for recovery, policy := range map[string]idempotency.Recovery{"rerun": idempotency.Rerun, "hold": idempotency.Hold} {
			guardtest.Bubble(t, name+", "+recovery, func(t *testing.T) {
				st := guardtest.NewStepFaultStore()
				late := guardtest.Always(func(_ context.Context, proceed func() error) error {
					defer time.Sleep(slow) // the reply is late
					return proceed()
				})
				st.On("step", late)
				st.On("renew", late)
				effects := 0
				errs := make(chan error, 1)
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					charge := func() error {
						_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { effects++; return 1, nil }, opts...)
						return err
					}
					if op, _ := idempotency.FromContext(r.Context()); name == "found" && op.Attempt() == 1 {
						errs <- charge()
						op.SetOutcome(idempotency.NotExecuted)
					} else {
						go func() {
							if name != "at most once" {
								time.Sleep(slow)
							}
							errs <- charge()
						}()
					}
					time.Sleep(slow / 2)
					w.WriteHeader(http.StatusTooManyRequests)
				})
				s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithRecovery(policy)).Handler(h))
				if name == "found" {
					s.Do(t, guardtest.Call{Key: "k"})
					require.NoError(t, <-errs)
				}
				before := effects
				got := s.Do(t, guardtest.Call{Key: "k"})
				switch {
				case name != "at most once": // nothing was done
					require.Equal(t, http.StatusTooManyRequests, got.Status)
					require.Empty(t, got.Header.Get("Idempotency-Error"))
				case policy == idempotency.Hold: // its mark says that it may have been
					require.Equal(t, "outcome-unknown", got.Header.Get("Idempotency-Error"))
				default:
					require.NotEmpty(t, got.Header.Get("Idempotency-Error"))
				}
				require.ErrorIs(t, <-errs, idempotency.ErrStepMisuse)
				require.Equal(t, before, effects)
			})
		}
	}
}

// A store goes back to a copy of itself that has the claim of a run, and nothing that came after it: neither the mark of a
// step, nor its result. The run knows what it has made, and says so again before it gives its claim back.
func TestStepIsNotRepeatedByAStoreThatWentBack(t *testing.T) {
	for recovery, policy := range map[string]idempotency.Recovery{"rerun": idempotency.Rerun, "hold after": idempotency.HoldAfter(3)} {
		for name, end := range map[string]func(w http.ResponseWriter){
			"500":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
			"429":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) },
			"panic": func(http.ResponseWriter) { panic("expected by the test") },
		} {
			for _, result := range []error{nil, errors.New("the bank does not answer")} {
				t.Run(name+", "+recovery, func(t *testing.T) {
					st := guardtest.NewStepFaultStore()
					st.On("step", func(n int) guardtest.Fault {
						if kept := result == nil && n > 2 || result != nil && n > 1; kept {
							return nil
						}
						return func(context.Context, func() error) error { return nil } // acknowledged, and lost
					})
					effects := 0
					h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { effects++; return 1, result }, idempotency.AtMostOnce())
						if op, _ := idempotency.FromContext(r.Context()); op.Attempt() > 1 && result == nil {
							assert.NoError(t, err)
							w.WriteHeader(http.StatusCreated)
							return
						}
						end(w)
					})
					guarded := guardtest.NewGuard(t, st, idempotency.WithRecovery(policy)).Handler(h)
					s := guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer func() { _ = recover() }()
						guarded.ServeHTTP(w, r)
					}))
					for range 3 {
						s.Do(t, guardtest.Call{Key: "k"})
					}
					require.Equal(t, 1, effects)
				})
			}
		}
	}
}

// The store has taken the result of a step and has not said so. The run knows it all the same.
func TestStepWhoseReplyWasLostKeepsItsResult(t *testing.T) {
	guardtest.Bubble(t, "", func(t *testing.T) {
		st := guardtest.NewStepFaultStore()
		st.On("step", guardtest.Between(2, 20, guardtest.LoseReply))
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			receipt, err := idempotency.Step(r.Context(), "mail", func(context.Context) (string, error) { return "receipt", nil }, idempotency.AtMostOnce())
			if guardtest.Op(r.Context()).Attempt() == 1 {
				st.Heal()
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = fmt.Fprint(w, receipt, err)
		})
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st).Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		time.Sleep(time.Minute)
		require.Equal(t, "receipt<nil>", s.Do(t, guardtest.Call{Key: "k"}).Body)
	})
}

// A run that comes back says of a step what it knows only where the record says nothing: somebody may have decided that
// it is made again.
func TestRunThatComesBackOverwritesNoStep(t *testing.T) {
	guardtest.Bubble(t, "", func(t *testing.T) {
		back, runs := make(chan struct{}), 0
		cut := guardtest.NewStepFaultStore()
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			run := runs
			receipt, err := idempotency.Step(r.Context(), "mail", func(context.Context) (int, error) { return run, nil }, idempotency.AtMostOnce())
			if run == 1 {
				cut.Fail(guardtest.Refuse)
				<-back
				cut.Heal()
			}
			if run < 3 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			_, _ = fmt.Fprint(w, receipt, err)
		})
		g := guardtest.NewGuard(t, cut.Behind)
		first, next := guardtest.ServeRecorder(t, guardtest.NewGuard(t, cut).Handler(h)), guardtest.ServeRecorder(t, g.Handler(h))
		first.Start(t, guardtest.Call{Key: "k"})
		time.Sleep(time.Minute)
		require.NoError(t, g.Forget(t.Context(), guardtest.HeldKey, guardtest.Seen(t, g), idempotency.Decision{}))
		next.Do(t, guardtest.Call{Key: "k"})
		close(back)
		time.Sleep(time.Minute)
		require.Equal(t, "2 <nil>", next.Do(t, guardtest.Call{Key: "k"}).Body)
	})
}

// A step that waits for its turn, because others are in hand, does not begin when its run has ended meanwhile.
func TestStepDoesNotGetItsTurnAfterItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, last := make(chan struct{}), make(chan error, 1)
		begun := false
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := range 8 { // as many as may be in hand at once
				go func() {
					_, _ = idempotency.Step(r.Context(), fmt.Sprint("charge ", i), func(context.Context) (int, error) { <-goOn; return 1, nil })
				}()
			}
			synctest.Wait()
			go func() {
				ctx := context.WithoutCancel(r.Context()) // whose end would be enough
				_, err := idempotency.Step(ctx, "mail", func(context.Context) (int, error) { begun = true; return 1, nil })
				last <- err
			}()
			synctest.Wait()
			w.WriteHeader(http.StatusInternalServerError)
		})
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, guardtest.NewStepFaultStore()).Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		close(goOn)
		require.ErrorIs(t, <-last, idempotency.ErrStepMisuse)
		require.False(t, begun)
	})
}
