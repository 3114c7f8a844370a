package runtest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A handler may pass on a field that its client or a service has sent. A success is one, whatever it says.
func TestSuccessIsAnAnswerWhateverAFieldSays(t *testing.T) {
	t.Parallel()
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
		for _, code := range append(problem.Codes(), "of-somebody-else") {
			for _, status := range []int{http.StatusCreated, http.StatusSeeOther} {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					w.Header().Set(problem.Header, string(code))
					w.WriteHeader(status)
				}}
				s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
				first := s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, status, first.Status, code)
				guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
				require.EqualValues(t, 1, h.Runs.Load(), code)
			}
		}
	})
}

// A guard whose run takes a step and streams a redirect has sent that with a mark. The mark counts here.
func TestMarkedRedirectOfAnotherGuardFreesNoKey(t *testing.T) {
	t.Parallel()
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set(problem.Header, string(problem.NoAnswer))
			w.WriteHeader(http.StatusTemporaryRedirect)
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
	})
}

// A refusal that the handler passes on from another guard is not an answer. What it is depends
// on whether the other guard had looked at the key.
func TestRefusalOfAnotherGuardIsNotAnAnswer(t *testing.T) {
	t.Parallel()
	notRun := map[problem.Code]bool{
		problem.KeyMissing: true, problem.KeyInvalid: true, problem.BodyUnreadable: true, problem.BodyTooLarge: true,
		problem.FingerprintFailed: true, problem.ScopeUnresolved: true, problem.ShuttingDown: true,
		problem.Unauthenticated: true,
	}
	codes := []problem.Code{
		problem.KeyMissing, problem.KeyInvalid, problem.BodyUnreadable, problem.BodyTooLarge, problem.FingerprintFailed,
		problem.ScopeUnresolved, problem.ReplayDenied, problem.KeyUnknown, problem.KeyReused, problem.InFlight,
		problem.OutcomeUnknown, problem.ResponseNotKept, problem.AnswerUnreadable, problem.StoreUnavailable,
		problem.ShuttingDown, problem.Unauthenticated, problem.TryLater, problem.NoAnswer, "a-code-of-the-future",
	}
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			code := problem.Code(r.URL.Path[1:])
			w.Header().Set(problem.Header, string(code))
			w.WriteHeader(max(http.StatusBadRequest, problem.New(code).Status))
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
		for _, code := range codes {
			c := guardtest.Call{Key: string(code), Path: "/" + string(code)}
			got := s.Do(t, c)
			shown := code
			if unknown == guardtest.IsHeld && !notRun[code] && code != problem.ResponseNotKept && code != problem.AnswerUnreadable {
				shown = problem.OutcomeUnknown // the key is held here, whatever the other guard says of its own
			}
			require.Equal(t, string(shown), got.Header.Get(problem.Header))
			want := unknown
			if notRun[code] {
				want = guardtest.RunsNext
			}
			guardtest.RequireFate(t, s, h, c, want)
		}
	})
}
