package eventtest

import (
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
)

// Some protocols tell of a failure in an answer 200. A guard that records it says so, once.
func TestFailureThatAnAnswer200Hides(t *testing.T) {
	t.Parallel()
	const (
		asJSON    = "application/json"
		asGraphQL = "application/graphql-response+json; charset=utf-8"
	)
	for name, test := range map[string]struct {
		mediaType, body string
		hides           bool
	}{
		"JSON-RPC, failed":      {asJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal"}}`, true},
		"JSON-RPC, own code":    {asJSON, ` {"id":1, "error" : {"code":7}, "jsonrpc":"2.0"}`, true},
		"JSON-RPC, in a batch":  {asJSON, `[{"jsonrpc":"2.0","result":1},{"jsonrpc":"2.0","error":{"code":1}}]`, true},
		"JSON-RPC, turned away": {asJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no amount"}}`, false},
		"JSON-RPC, done":        {asJSON, `{"jsonrpc":"2.0","id":1,"result":{"error":null}}`, false},
		"GraphQL, failed":       {asGraphQL, `{"errors":[{"message":"no"}],"data":null}`, true},
		"GraphQL, partly":       {asJSON, `{"data":{"a":1,"b":null},"errors":[{"message":"no","path":["b"]}]}`, true},
		"GraphQL, done":         {asGraphQL, `{"data":{"errors":[{"message":"of the data"}]}}`, false},
		"no errors":             {asJSON, `{"errors":[],"error":null}`, false},
		"errors of the program": {asJSON, `{"errors":["row 7"]}`, false},
		"another type":          {"text/plain", `{"errors":[{"message":"no"}]}`, false},
		"not JSON":              {asJSON, `{"errors":[{"message"`, false},
		"too large":             {asJSON, `{"errors":[{"message":"` + strings.Repeat("x", 64<<10) + `"}]}`, false},
	} {
		var events guardtest.Events
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithObserver(events.Observe), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
		status := http.StatusOK
		says := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", test.mediaType)
			if r.Header.Get("X-Says") != "" {
				op, _ := idempotency.FromContext(r.Context())
				op.SetOutcome(idempotency.Unknown)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, test.body)
		})
		ask := func(g *idempotency.Guard, header http.Header) {
			header.Set("Idempotency-Key", rand.Text())
			guardtest.ServeRecorder(t, g.Handler(says)).Do(t, guardtest.Call{Header: header})
		}
		ask(guard, http.Header{"X-Says": {"1"}})
		ask(guard.With(idempotency.WithOutcome(idempotency.DefaultOutcome)), http.Header{})
		status = http.StatusBadRequest
		ask(guard, http.Header{})
		require.Zero(t, events.Count(event.HiddenFailure), name)
		status = http.StatusOK
		ask(guard, http.Header{})
		ask(guard, http.Header{})
		want := 0
		if test.hides {
			want = 1
			require.ErrorContains(t, events.Errors()[0], "SetOutcome", name)
		}
		require.Equal(t, want, events.Count(event.HiddenFailure), name)
	}
}
