package policytest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// Each answer, by each status with and without Retry-After, has the consequence that is
// published for it.
func TestAnswers(t *testing.T) {
	own := func(status int, h http.Header) idempotency.Outcome {
		switch {
		case status == http.StatusTeapot:
			return idempotency.Unknown
		case status == http.StatusServiceUnavailable && h.Get("Retry-After") != "":
			return idempotency.NotExecuted
		case status == http.StatusInsufficientStorage:
			return 99 // not an outcome
		default:
			return idempotency.Final
		}
	}
	for name, options := range map[string][]idempotency.Option{
		"default": nil,
		"hold":    {hold},
		"own":     {idempotency.WithOutcome(own)},
	} {
		t.Run(name, func(t *testing.T) {
			met := make(map[policy.Next]int)
			for status := http.StatusOK; status <= 599; status++ {
				for _, field := range []string{"", "Retry-After"} {
					a := newAPI(t, false, options...)
					a.answers(func(w http.ResponseWriter, _ *http.Request, _ int64) {
						if field != "" {
							w.Header().Set(field, "1")
						}
						w.WriteHeader(status)
					})
					want := nextOf(t, a.policy.Answers, status, field)
					shown, gaveUp := status, status == http.StatusRequestTimeout || status == 499
					switch { // an unknown outcome is not shown as a refusal
					case name == "own" && status == http.StatusTeapot, name == "default" && gaveUp:
						shown = http.StatusServiceUnavailable
					case name == "hold" && gaveUp:
						shown = http.StatusConflict
					}
					require.Equal(t, shown, a.runs(t, call("k")).Status)
					requireNext(t, a, want)
					met[want]++
				}
			}
			require.Positive(t, met[policy.Replay])
			require.Positive(t, met[policy.Run])
			require.Equal(t, name == "hold", met[policy.Refused] > 0)
		})
	}
}

// nextOf looks an answer up. A row with a field takes precedence over one without.
func nextOf(t *testing.T, rows []policy.Answers, status int, field string) policy.Next {
	t.Helper()
	found := make(map[string]policy.Next)
	for _, row := range rows {
		for _, r := range row.Statuses {
			if r.From <= status && status <= r.To {
				require.Empty(t, found[row.With], "%d has two consequences", status)
				found[row.With] = row.Next
			}
		}
	}
	require.NotEmpty(t, found[""], "%d has no consequence", status)
	if next, ok := found[field]; ok {
		return next
	}
	return found[""]
}

func requireNext(t *testing.T, a *api, want policy.Next) {
	t.Helper()
	switch want {
	case policy.Replay:
		a.replays(t, call("k"))
	case policy.Run:
		a.runs(t, call("k"))
	default:
		a.refuses(t, call("k"), problem.OutcomeUnknown)
	}
}

// An operation may say otherwise, as the page says.
func TestOperationSaysOtherwise(t *testing.T) {
	a := newAPI(t, false)
	require.Equal(t, policy.Run, nextOf(t, a.policy.Answers, http.StatusBadGateway, ""))
	a.answers(func(w http.ResponseWriter, r *http.Request, _ int64) {
		guardtest.Op(r.Context()).SetOutcome(idempotency.Final)
		w.WriteHeader(http.StatusBadGateway)
	})
	a.runs(t, call("k"))
	requireNext(t, a, policy.Replay)
}

// The type of a problem leads to its explanation on the page.
func TestProblemsLeadToTheirExplanations(t *testing.T) {
	a := newAPI(t, false, idempotency.WithRequired(true), idempotency.WithPolicyURL("https://api.example.com/keys"))
	page := guardtest.ServeRecorder(t, policy.Handler(a.policy)).Do(t, guardtest.Call{Method: http.MethodGet, NoBody: true}).Body
	got := a.refuses(t, call(""), problem.KeyMissing)
	require.Equal(t, a.policy.URL+"#"+string(got.Problem.Code), got.Problem.Type)
	for _, code := range problem.Codes() {
		require.Contains(t, page, `<section id="`+string(code)+`">`)
	}
	require.Contains(t, got.Header.Get("Link"), a.policy.URL)
}
