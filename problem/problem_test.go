package problem_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/token"
	"example.com/idempotency/problem"
)

var codes = map[problem.Code]int{
	problem.KeyMissing:        http.StatusBadRequest,
	problem.KeyInvalid:        http.StatusBadRequest,
	problem.BodyUnreadable:    http.StatusBadRequest,
	problem.BodyTooLarge:      http.StatusRequestEntityTooLarge,
	problem.FingerprintFailed: http.StatusBadRequest,
	problem.Unauthenticated:   http.StatusUnauthorized,
	problem.ScopeUnresolved:   http.StatusForbidden,
	problem.ReplayDenied:      http.StatusForbidden,
	problem.KeyUnknown:        http.StatusNotFound,
	problem.KeyReused:         http.StatusConflict,
	problem.InFlight:          http.StatusConflict,
	problem.OutcomeUnknown:    http.StatusConflict,
	problem.ResponseNotKept:   http.StatusConflict,
	problem.NoAnswer:          http.StatusServiceUnavailable,
	problem.RolledBack:        http.StatusServiceUnavailable,
	problem.CannotCommit:      http.StatusInternalServerError,
	problem.Misplaced:         http.StatusInternalServerError,
	problem.AnswerUnreadable:  http.StatusInternalServerError,
	problem.StoreUnavailable:  http.StatusServiceUnavailable,
	problem.TryLater:          http.StatusServiceUnavailable,
	problem.ShuttingDown:      http.StatusServiceUnavailable,
}

func TestCodesAreInOrder(t *testing.T) {
	got := problem.Codes()
	require.True(t, slices.IsSortedFunc(got, func(a, b problem.Code) int { return problem.New(a).Status - problem.New(b).Status }))
	require.ElementsMatch(t, slices.Collect(maps.Keys(codes)), got)
}

func TestEachCodeHasADocument(t *testing.T) {
	for code, status := range codes {
		require.True(t, code.Known(), code)
		require.True(t, token.Is(string(code)), "%s is the value of a header field", code)
		got := problem.New(code)
		require.Equal(t, code, got.Code)
		require.Equal(t, status, got.Status, code)
		require.NotEmpty(t, got.Title, code)
		require.NotEmpty(t, got.Detail, code)
		retryable := code == problem.InFlight || status == http.StatusServiceUnavailable
		require.Equal(t, retryable, code.Retryable(), code)
	}
}

func TestOtherCodesAreNotKnown(t *testing.T) {
	for _, code := range []problem.Code{"", "sold-out"} {
		require.False(t, code.Known())
		require.False(t, code.Retryable())
		require.Equal(t, problem.Document{Code: code}, problem.New(code))
	}
}
