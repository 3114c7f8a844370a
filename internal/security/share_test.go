package security

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// shares are stores that a tenant can fill: with many records, or with few large answers.
var shares = map[string]struct {
	limit  idempotency.MemoryOption
	answer int
}{
	"entries": {idempotency.WithMaxEntries(100), 10},
	"bytes":   {idempotency.WithMaxBytes(256 << 10), 8 << 10},
}

// flood sends ever new keys of a tenant and returns those that were accepted.
func flood(t *testing.T, s *guardtest.Server, tenant string, n int) (accepted []string) {
	t.Helper()
	for i := range n {
		key := fmt.Sprint(i)
		got := s.Do(t, guardtest.Call{Key: key, Tenant: tenant})
		if got.Status == http.StatusCreated {
			accepted = append(accepted, key)
			continue
		}
		guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
	}
	return accepted
}

// newcomers returns how many records four tenants with a name like this get, who each ask for
// some. One of them may have to share with the tenant that has filled the store.
func newcomers(t *testing.T, s *guardtest.Server, name string, each int) (n int) {
	t.Helper()
	for i := range 4 {
		n += len(flood(t, s, strings.Repeat(name, i+1), each))
	}
	return n
}

func answering(bytes int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, strings.Repeat("x", bytes))
	})
}

// One tenant fills the store. It is refused, and the others still get in.
func TestTenantThatFillsTheStoreIsRefusedBeforeOthers(t *testing.T) {
	t.Parallel()
	for name, share := range shares {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(share.limit)).Handler(answering(share.answer)))
			own := flood(t, s, "greedy", 400)
			require.NotEmpty(t, own)
			require.GreaterOrEqual(t, newcomers(t, s, "other", 1), 3)
			require.Empty(t, flood(t, s, "greedy", 400)[len(own):], "its own records are still answered, and no more of them")
		})
	}
}

// Tenants have more than their share, and give it back. They get in again when somebody else has
// filled the store.
func TestRoomThatIsGivenBackIsInNoShare(t *testing.T) {
	t.Parallel()
	st := idempotency.NewMemoryStore(idempotency.WithMaxEntries(100))
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st).Handler(answering(10)))
	require.Equal(t, 60, newcomers(t, s, "former", 15))
	for _, e := range guardtest.List(t, st, store.Query{}) {
		require.NoError(t, st.Forget(t.Context(), e.Key, e.Record.Seen()))
	}
	require.Len(t, flood(t, s, "greedy", 400), 75)
	require.GreaterOrEqual(t, newcomers(t, s, "former", 1), 3)
}

// Callers that share one scope share all of the room.
func TestSharedScopeHasAllTheRoom(t *testing.T) {
	t.Parallel()
	guard, err := idempotency.New(idempotency.NewMemoryStore(idempotency.WithMaxEntries(100)), idempotency.SharedScope,
		idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	s := guardtest.ServeRecorder(t, guard.Handler(answering(10)))
	require.Len(t, flood(t, s, "", 400), 100)
}
