package policytest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A refusal is one code with one status. provoke sends a request that gets it. mend ends the
// cause, if a retry helps.
type refusal struct {
	code    problem.Code
	status  int
	options []idempotency.Option
	provoke func(t *testing.T, a *api) guardtest.Reply
	mend    func(t *testing.T, a *api)
}

var errNo = errors.New("no")

func refuseReplay(*http.Request, idempotency.RecordInfo) error { return errNo }

func refuseFingerprint(*http.Request, []byte) (idempotency.Fingerprint, error) {
	return idempotency.Fingerprint{}, errNo
}

func ask(c guardtest.Call) func(t *testing.T, a *api) guardtest.Reply {
	return func(t *testing.T, a *api) guardtest.Reply { return a.Do(t, c) }
}

// again sends a request a second time.
func again(c guardtest.Call) func(t *testing.T, a *api) guardtest.Reply {
	return func(t *testing.T, a *api) guardtest.Reply {
		a.runs(t, call("k"))
		return a.Do(t, c)
	}
}

var refusals = []refusal{
	{problem.KeyMissing, 400, []idempotency.Option{idempotency.WithRequired(true)}, ask(call("")), nil},
	{problem.KeyInvalid, 400, nil, ask(call("a,b")), nil},
	{problem.BodyTooLarge, 413, []idempotency.Option{idempotency.WithLimits(idempotency.Limits{RequestBody: 1})}, ask(call("k")), nil},
	{problem.FingerprintFailed, 400, []idempotency.Option{idempotency.WithFingerprint(refuseFingerprint)}, ask(call("k")), nil},
	{problem.FingerprintFailed, 400, nil, ask(guardtest.Call{Key: "k", Header: http.Header{"Content-Type": {"application/grpc"}}}), nil},
	{problem.ScopeUnresolved, 403, nil, ask(guardtest.Call{Key: "k", Tenant: "unknown"}), nil},
	{problem.ReplayDenied, 403, []idempotency.Option{idempotency.WithAuthorizeReplay(refuseReplay)}, again(call("k")), nil},
	{problem.KeyReused, 409, nil, again(guardtest.Call{Key: "k", Body: "other"}), nil},
	{problem.KeyReused, 422, []idempotency.Option{idempotency.WithMismatchStatus(422)}, again(guardtest.Call{Key: "k", Body: "other"}), nil},
	{problem.BodyUnreadable, 400, nil, func(t *testing.T, a *api) guardtest.Reply {
		h := a.guard.Handler(a.h)
		reads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			h.ServeHTTP(w, r)
		})
		return guardtest.ServeRecorder(t, reads).Do(t, call("k"))
	}, nil},
	{problem.OutcomeUnknown, 409, []idempotency.Option{hold}, func(t *testing.T, a *api) guardtest.Reply {
		a.unknown(t, call("k"))
		return a.Do(t, call("k"))
	}, nil},
	{problem.ResponseNotKept, 409, []idempotency.Option{idempotency.WithLimits(idempotency.Limits{ResponseBody: 1})}, again(call("k")), nil},
	{problem.AnswerUnreadable, 500, nil, func(t *testing.T, a *api) guardtest.Reply {
		a.runs(t, call("k"))
		a.store.Replace(&guardtest.AlteringStore{Store: a.store.Behind, Alter: func(b []byte) []byte { return b[:1] }})
		return a.Do(t, call("k"))
	}, nil},
	{problem.InFlight, 409, nil, func(t *testing.T, a *api) guardtest.Reply {
		a.inFlight(t, call("k"), time.Minute)
		return a.Do(t, call("k"))
	}, func(*testing.T, *api) { time.Sleep(time.Minute) }},
	{problem.NoAnswer, 503, nil, func(t *testing.T, a *api) guardtest.Reply {
		a.store.On("renew", guardtest.Always(guardtest.Refuse))
		a.answers(func(_ http.ResponseWriter, r *http.Request, _ int64) { <-r.Context().Done() })
		return a.Do(t, call("k"))
	}, func(_ *testing.T, a *api) {
		a.store.Heal()
		a.answers(nil)
	}},
	{problem.StoreUnavailable, 503, nil, func(t *testing.T, a *api) guardtest.Reply {
		a.store.On("claim", guardtest.Always(guardtest.Refuse))
		return a.Do(t, call("k"))
	}, func(_ *testing.T, a *api) { a.store.Heal() }},
	{problem.ShuttingDown, 503, nil, func(t *testing.T, a *api) guardtest.Reply {
		require.NoError(t, a.guard.Shutdown(t.Context()))
		return a.Do(t, call("k"))
	}, func(t *testing.T, a *api) {
		*a.Server = *guardtest.ServeRecorder(t, guardtest.NewGuard(t, a.store).Handler(a.h)) // the next process
	}},
}

// Each refusal that is published happens, with that status and title, and means what it says:
// where a retry helps, the same request succeeds once its cause has gone, and where it does not,
// the same request is refused again. A refusal that says nothing about earlier requests has not
// asked the store.
func TestRefusals(t *testing.T) {
	for _, tt := range refusals {
		guardtest.Bubble(t, fmt.Sprintf("%s %d", tt.code, tt.status), func(t *testing.T) {
			a := newAPI(t, false, tt.options...)
			got := tt.provoke(t, a)
			a.requireRefusal(t, got, tt.code)
			require.Equal(t, tt.status, got.Status)
			r := a.refusal(t, tt.code)
			require.NotEmpty(t, r.Meaning)
			require.Equal(t, r.Retry, tt.mend != nil)
			if r.NotRun {
				require.Zero(t, a.store.Count("claim"))
				require.Zero(t, a.h.Runs.Load())
			}
			switch {
			case r.Retry:
				tt.mend(t, a)
				require.Less(t, a.Do(t, call("k")).Status, 300)
			case !r.NotRun:
				a.requireRefusal(t, a.Do(t, guardtest.Call{Key: "k", Body: map[bool]string{true: "other"}[tt.code == problem.KeyReused]}), tt.code)
			}
			time.Sleep(time.Hour)
		})
	}
}

// A body that a deadline cuts off needs a connection.
func TestRefusalOfABodyThatIsLate(t *testing.T) {
	h := new(guardtest.Counter)
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	s := httptest.NewUnstartedServer(guard.Handler(h))
	s.Config.ReadHeaderTimeout, s.Config.ReadTimeout = time.Minute, 100*time.Millisecond // only the body is late
	s.Start()
	defer s.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 100\r\n\r\nbeginning")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, string(problem.BodyUnreadable), resp.Header.Get(problem.Header))
	require.Zero(t, h.Runs.Load())
	a := api{policy: guard.Policy()}
	require.Contains(t, a.refusal(t, problem.BodyUnreadable).Statuses, resp.StatusCode)
	require.Equal(t, lateBody.status, resp.StatusCode)
}

var lateBody = refusal{code: problem.BodyUnreadable, status: http.StatusRequestTimeout}

// What a function of the route says of the caller is refused with the code that the policy has
// for it, if the route has such a function.
func TestRefusalsOfTheScopeFunction(t *testing.T) {
	for _, tt := range ofScope {
		cause := map[problem.Code]error{problem.Unauthenticated: idempotency.ErrUnauthenticated, problem.TryLater: idempotency.ErrTryLater}[tt.code]
		a := newAPI(t, false)
		g, err := idempotency.New(a.store, func(*http.Request) (string, error) {
			if a.h.Runs.Load() > 0 {
				return "acme", nil
			}
			return "", cause
		})
		require.NoError(t, err)
		a.Server, a.policy = guardtest.ServeRecorder(t, g.Handler(a.h)), g.Policy()
		require.Equal(t, tt.status, a.refuses(t, call("k"), tt.code).Status)
		require.Zero(t, a.store.Count("claim"))
		if a.refusal(t, tt.code).Retry {
			a.h.Runs.Add(1) // from now on, the scope function knows
			a.runs(t, call("k"))
		}
	}
	shared := newAPI(t, true)
	for _, r := range shared.policy.Refusals {
		require.NotContains(t, []problem.Code{problem.Unauthenticated, problem.ScopeUnresolved}, r.Code)
	}
}

var ofScope = []refusal{
	{code: problem.Unauthenticated, status: http.StatusUnauthorized},
	{code: problem.TryLater, status: http.StatusServiceUnavailable},
}

var ofTransaction = []refusal{
	{code: problem.RolledBack, status: http.StatusServiceUnavailable},
	{code: problem.CannotCommit, status: http.StatusInternalServerError},
}

// A route with transactions publishes that a commit can be refused, and that a run without a
// recorded answer has done nothing. A retry helps where that is said.
func TestRefusalsOfTransactions(t *testing.T) {
	for _, tt := range ofTransaction {
		st, h := guardtest.NewTxStore(), new(guardtest.Counter)
		h.Handler = func(w http.ResponseWriter, r *http.Request, _ int64) {
			if st.InTx(r.Context(), func(tx *guardtest.Tx) error { return tx.Insert("row") }) != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		g := guardtest.NewGuard(t, st, idempotency.WithTransaction(true), hold)
		a := &api{Server: guardtest.ServeRecorder(t, g.Handler(h)), policy: g.Policy()}
		require.False(t, a.policy.Hold)
		for _, answers := range a.policy.Answers {
			require.NotEqual(t, idempotency.Unknown.String(), answers.Outcome)
		}
		refused := &store.RolledBackError{Retry: a.refusal(t, tt.code).Retry, Err: errNo}
		st.On("commit", guardtest.First(1, guardtest.FailWith(refused)))
		got := a.Do(t, call("k"))
		a.requireRefusal(t, got, tt.code)
		require.Equal(t, tt.status, got.Status)
		require.Empty(t, st.Rows())
		require.Equal(t, http.StatusOK, a.Do(t, call("k")).Status)
		require.Len(t, st.Rows(), 1)
	}
}
