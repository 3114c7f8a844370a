package mcpidempotency_test

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/mcpidempotency"
)

// No function of a program can return the scope of another caller, and none needs to: it may call the
// functions of this package, and choose among what they return.
func TestCallerFuncOfAProgram(t *testing.T) {
	bob, err := mcpidempotency.User(t.Context(), &mcp.CallToolRequest{Extra: &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{UserID: "bob"}}})
	require.NoError(t, err)
	conversation := mcpidempotency.Conversation("stdio")
	for name, c := range map[string]struct {
		caller mcpidempotency.CallerFunc
		ok     bool
	}{
		"a name":                   {func(context.Context, *mcp.CallToolRequest) (string, error) { return "alice", nil }, true},
		"a name of another caller": {func(context.Context, *mcp.CallToolRequest) (string, error) { return bob, nil }, false},
		"one of this package's": {func(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
			if scope, err := mcpidempotency.Session(ctx, req); err == nil {
				return scope, nil
			}
			return conversation(ctx, req)
		}, true},
		"an earlier one of this package's": {func(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
			scope, err := conversation(ctx, req)
			_, _ = mcpidempotency.Conversation("other")(ctx, req)
			return scope, err
		}, true},
		"with something added": {func(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
			scope, err := conversation(ctx, req)
			return scope + "/alice", err
		}, false},
		"with something in front": {func(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
			scope, err := conversation(ctx, req)
			return "alice/" + scope, err
		}, true},
		"another than it was asked for": {func(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
			_, err := conversation(ctx, req)
			return bob, err
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, mcpidempotency.SameCall())
			res := call(t, w.connect(t, mcpidempotency.SameCall(), c.caller), invoice, nil)
			require.Equal(t, c.ok, !res.IsError)
			require.Equal(t, c.ok, w.runs.Load() == 1)
			if !c.ok {
				require.Contains(t, text(t, res), "scope-unresolved: ")
			}
		})
	}
}

// Without a key, and beside a guard that only looks on, the tool runs unprotected. Its panic does not end the server.
func TestPanicWithoutAKeyIsAnError(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		w := newWorld(t, mcpidempotency.MetaKey(), idempotency.WithShadow(shadow))
		w.pay = func(context.Context, payment) (*mcp.CallToolResult, error) { panic("secret") }
		for _, meta := range []mcp.Meta{nil, {mcpidempotency.KeyMeta: 7}} {
			if got := call(t, w.session, invoice, meta); meta == nil || shadow {
				require.True(t, got.IsError)
				require.Equal(t, "the tool panicked", text(t, got))
			}
		}
	}
}
