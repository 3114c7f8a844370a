package recordtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// This file checks what the client of a run of unknown outcome is shown. A plain 4xx would tell
// it that nothing was done.

func setUnknown(r *http.Request) {
	guardtest.Op(r.Context()).SetOutcome(idempotency.Unknown)
}

func recordCharge(r *http.Request) {
	_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
}

func setUnknownAfterCharge(r *http.Request) {
	recordCharge(r)
	setUnknown(r)
}

// begin does what a handler does before it answers, and sets a field unless its name is empty.
func begin(w http.ResponseWriter, r *http.Request, before func(*http.Request), field [2]string) {
	if before != nil {
		before(r)
	}
	if field[0] != "" {
		w.Header().Set(field[0], field[1])
	}
}

func TestUnknownRunDeniesNoEffect(t *testing.T) {
	const asItIs, marked = problem.Code(""), problem.Code("marked")
	unknownRule := idempotency.WithOutcome(func(int, http.Header) idempotency.Outcome { return idempotency.Unknown })
	type row struct {
		before      func(*http.Request)
		field       [2]string
		status      int
		opt         idempotency.Option
		rerun, hold problem.Code
	}
	guardtest.Each(t, map[string]row{
		"a step, and 429":           {before: recordCharge, status: 429, rerun: marked, hold: problem.OutcomeUnknown},
		"a step, 429 and the word":  {before: setUnknownAfterCharge, status: 429, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"a step, and 401":           {before: recordCharge, status: 401, rerun: marked, hold: problem.OutcomeUnknown},
		"a step, and 407":           {before: recordCharge, status: 407, rerun: marked, hold: problem.OutcomeUnknown},
		"a step, and 421":           {before: recordCharge, status: 421, rerun: marked, hold: problem.OutcomeUnknown},
		"a step, and 425":           {before: recordCharge, status: 425, rerun: marked, hold: problem.OutcomeUnknown},
		"a step, and 307":           {before: recordCharge, status: 307, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"the handler's word":        {before: setUnknown, status: 422, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"the route's rule":          {opt: unknownRule, status: 400, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"another answer is to come": {field: [2]string{"Retry-After", "7"}, status: 409, rerun: asItIs, hold: problem.OutcomeUnknown},
		"another code":              {before: setUnknown, field: [2]string{problem.Header, string(problem.OutcomeUnknown)}, status: 422, rerun: problem.OutcomeUnknown, hold: problem.OutcomeUnknown},
		"a server error":            {before: recordCharge, status: 500, rerun: asItIs, hold: asItIs},
		"an answer":                 {before: setUnknown, status: 202, rerun: asItIs, hold: asItIs},
		"a redirect to the result":  {before: setUnknown, status: 303, rerun: asItIs, hold: asItIs},
	}, func(t *testing.T, c row) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				begin(w, r, c.before, c.field)
				w.Header().Set("X-Handler", "shown")
				w.WriteHeader(c.status)
				if c.field[0] != "" {
					w.Header()[c.field[0]][0] = "" // after it was written
				}
			}}
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery, c.opt).Handler(h))
			want := map[guardtest.Fate]problem.Code{guardtest.RunsNext: c.rerun, guardtest.IsHeld: c.hold}[unknown]
			got := s.Do(t, guardtest.Call{Key: "k"})
			if want == marked { // a person is served by the answer, and a program by its code
				require.Equal(t, c.status, got.Status)
				require.Equal(t, "shown", got.Header.Get("X-Handler"))
				require.Equal(t, string(problem.NoAnswer), got.Header.Get(problem.Header))
			} else if want == asItIs || want == problem.Code(c.field[1]) {
				require.Equal(t, c.status, got.Status)
				require.Equal(t, "shown", got.Header.Get("X-Handler"))
				require.Equal(t, string(want), got.Header.Get(problem.Header))
			} else {
				guardtest.RequireProblem(t, got, problem.New(want).Status, want)
				require.Empty(t, got.Header.Get("X-Handler"))
			}
			guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
		})
	})
}

// What a stream has sent cannot be taken back, so the mark goes out with its head, whether it is flushed
// or has outgrown what is kept.
func TestHeadThatLeavesEarlyDeniesNoEffect(t *testing.T) {
	for name, c := range map[string]struct {
		before      func(*http.Request)
		field       [2]string
		status      int
		opt         idempotency.Option
		rerun, hold problem.Code // of the mark
	}{
		"a step, and 429":              {before: recordCharge, status: 429, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"a step, and 307":              {before: recordCharge, status: 307, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"somebody has given up":        {status: 408, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"the client has not waited":    {status: 499, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"another answer is to come":    {field: [2]string{"Retry-After", "7"}, status: 409, hold: problem.OutcomeUnknown},
		"a step before another guard":  {before: recordCharge, field: [2]string{problem.Header, string(problem.ShuttingDown)}, status: 503, rerun: problem.NoAnswer, hold: problem.OutcomeUnknown},
		"nothing was done":             {status: 429},
		"a definite refusal":           {before: recordCharge, status: 422},
		"a server error":               {before: recordCharge, status: 500},
		"an answer":                    {before: recordCharge, status: 200},
		"the program judges by itself": {before: recordCharge, status: 429, opt: idempotency.WithOutcome(idempotency.DefaultOutcome)},
	} {
		for size, sends := range map[string]func(w http.ResponseWriter){
			"flushed": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
			"large":   func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 101)) },
		} {
			t.Run(name+"/"+size, func(t *testing.T) {
				guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
					h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
						begin(w, r, c.before, c.field)
						w.WriteHeader(c.status)
						_, _ = w.Write([]byte("too "))
						sends(w)
						_, _ = w.Write([]byte("many"))
					}}
					limit := idempotency.WithLimits(idempotency.Limits{ResponseBody: 100})
					s := guardtest.ServeHTTP1(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery, limit, c.opt).Handler(h))
					want := map[guardtest.Fate]problem.Code{guardtest.RunsNext: c.rerun, guardtest.IsHeld: c.hold}[unknown]
					got := s.Do(t, guardtest.Call{Key: "k"})
					require.Equal(t, c.status, got.Status)
					require.Equal(t, "too ", got.Body[:4])
					require.Equal(t, "many", got.Body[len(got.Body)-4:])
					require.Equal(t, string(want), got.Header.Get(problem.Header))
				})
			})
		}
	}
}

// The refusal is definite, and only its record is missing.
func TestDefiniteRefusalThatCannotBeSealedIsShown(t *testing.T) {
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}}
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithSealer(guardtest.FailingSealer{})).Handler(h))
	require.Equal(t, http.StatusUnprocessableEntity, s.Do(t, guardtest.Call{Key: "k"}).Status)
	guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, guardtest.IsHeld)
}

// A run has lost its lease after its effect. The refusal of its handler may come from that.
func TestRefusalOfALostRunDeniesNoEffect(t *testing.T) {
	for recovery, want := range map[idempotency.Recovery]problem.Code{
		idempotency.Rerun: problem.NoAnswer, idempotency.Hold: problem.OutcomeUnknown,
	} {
		for _, status := range []int{307, 308, 402, 409, 422, 429} {
			guardtest.Bubble(t, recovery.String()+" "+http.StatusText(status), func(t *testing.T) {
				p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					<-r.Context().Done()
					w.WriteHeader(status)
				}), idempotency.WithRecovery(recovery))
				p.Store.On("renew", guardtest.Always(guardtest.Refuse))
				guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), problem.New(want).Status, want)
			})
		}
	}
}

// A run is told to stop by its deadline too, and by a client that has gone. Its refusal says as little
// then: its effect may be on the way. One that has never looked at its context was not stopped by it.
func TestRefusalOfARunThatWasToldToStop(t *testing.T) {
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		},
		"client": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, hangUp := context.WithCancel(ctx)
			time.AfterFunc(time.Second, hangUp)
			return ctx, hangUp
		},
	} {
		for _, looks := range []bool{true, false} {
			for _, status := range []int{402, 408, 422, 429} {
				t.Run(fmt.Sprintf("%s/looks %t/%d", name, looks, status), func(t *testing.T) {
					guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
						h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
							if run > 1 {
								return
							}
							if looks {
								<-r.Context().Done()
							} else {
								time.Sleep(2 * time.Second)
							}
							w.WriteHeader(status)
						}}
						p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery, idempotency.WithClientCancel(name == "client"))
						ctx, stop := end(t.Context())
						defer stop()
						_, _ = p.Try(ctx, guardtest.Call{Key: "k"})
						synctest.Wait()
						time.Sleep(2 * time.Second)
						again := p.Do(t, guardtest.Call{Key: "k"})
						switch {
						case (looks || status == http.StatusRequestTimeout) && unknown == guardtest.IsHeld:
							guardtest.RequireProblem(t, again, http.StatusConflict, problem.OutcomeUnknown)
						case looks, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
							require.Equal(t, http.StatusOK, again.Status)
							require.False(t, again.Replayed())
						default:
							require.Equal(t, status, again.Status)
							require.True(t, again.Replayed())
						}
					})
				})
			}
		}
	}
}

// When the head leaves, it is known that the run was told to stop, or that another one may have come between: what
// the client gets says so, whatever it is.
func TestEarlyHeadOfAStoppedRunDeniesNoEffect(t *testing.T) {
	ends := map[string]func(http.Handler) http.Handler{
		"lost": func(next http.Handler) http.Handler { return next },
		"deadline": func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				defer cancel()
				next.ServeHTTP(w, r.WithContext(ctx))
			})
		},
	}
	for end, outer := range ends {
		for _, size := range []int{1, 101} {
			for _, status := range []int{200, 307, 401, 422, 429, 502} {
				t.Run(fmt.Sprintf("%s/%d/%d", end, size, status), func(t *testing.T) {
					guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
						st := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
						g := guardtest.NewGuard(t, st, recovery, idempotency.WithLimits(idempotency.Limits{ResponseBody: 100}))
						s := guardtest.ServeRecorder(t, outer(g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if end == "lost" {
								st.On("renew", guardtest.Always(guardtest.Refuse))
							}
							<-r.Context().Done()
							st.Heal()
							w.WriteHeader(status)
							_, _ = w.Write(make([]byte, size))
							w.(http.Flusher).Flush()
						}))))
						var want problem.Code
						switch {
						case status < 300 || status >= 500:
							if end == "lost" {
								want = problem.NoAnswer
							}
						case unknown == guardtest.IsHeld:
							want = problem.OutcomeUnknown
						default:
							want = problem.NoAnswer
						}
						got := s.Do(t, guardtest.Call{Key: "k"})
						require.Equal(t, status, got.Status)
						require.Equal(t, string(want), got.Header.Get(problem.Header))
					})
				})
			}
		}
	}
}

// A refusal that comes after the deadline for another reason looks the same. The handler knows, and its word
// counts.
func TestRefusalAfterTheDeadlineThatTheHandlerVouchesFor(t *testing.T) {
	guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
			if run > 1 {
				return
			}
			<-r.Context().Done()
			guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
			w.WriteHeader(http.StatusUnprocessableEntity)
		}}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, _ = p.Try(ctx, guardtest.Call{Key: "k"})
		synctest.Wait()
		require.Equal(t, http.StatusOK, p.Do(t, guardtest.Call{Key: "k"}).Status)
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// A later attempt finds the step of the first. Its 429 denies an effect as wrongly as that of
// the first attempt.
func TestStepThatIsFoundOutvotesTheStatus(t *testing.T) {
	guardtest.Each(t, map[string]error{"done": nil, "refused for good": idempotency.Permanent(errors.New("declined"))}, func(t *testing.T, err error) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			var events guardtest.Events
			steps := 0
			g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery, idempotency.WithObserver(events.Observe))
			s := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { steps++; return 1, err })
				w.WriteHeader(http.StatusTooManyRequests)
			})))
			for attempt := 1; attempt <= 3; attempt++ {
				got := s.Do(t, guardtest.Call{Key: "k"})
				if unknown != guardtest.IsHeld {
					require.Equal(t, http.StatusTooManyRequests, got.Status)
					require.Equal(t, string(problem.NoAnswer), got.Header.Get(problem.Header))
				} else { // somebody lets it run again
					guardtest.RequireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
					require.NoError(t, g.Resolve(t.Context(), guardtest.HeldKey, guardtest.Seen(t, g), idempotency.Resolution{Outcome: idempotency.Resume}))
				}
			}
			require.Equal(t, 1, steps)
			for _, e := range events.All() {
				if e.Kind == event.Run {
					require.Equal(t, idempotency.Unknown, e.Outcome, "attempt %d", e.Attempt)
				}
			}
			require.Equal(t, 3, events.Count(event.Run))
		})
	})
}
