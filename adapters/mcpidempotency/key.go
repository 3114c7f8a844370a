package mcpidempotency

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"example.com/idempotency"
	"example.com/idempotency/internal/jcs"
	"example.com/idempotency/internal/reserved"
)

// This file says which calls are one, and whose they are.

// A CallerFunc returns the scope of a call: whose it is. Calls of different scopes never meet. Its error
// is the error of the call; nothing runs then. It may call another CallerFunc with the same arguments,
// and return its scope. Any other scope that begins with a zero byte is refused: it could be one that a
// CallerFunc of this package returns for another caller.
type CallerFunc func(ctx context.Context, req *mcp.CallToolRequest) (string, error)

var errNoSession = errors.New("scope-unresolved: the session has no ID, as on standard input and output; the server needs another CallerFunc")

// Session is a [CallerFunc]: the calls of one session, which is one conversation for most clients. A
// session has an ID over HTTP only, and not where the server is stateless. A client that comes back in a
// new session is another caller, and its calls run again. Sessions end with the process of their server:
// where it may be restarted, [User] protects more.
func Session(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
	id := req.Session.ID()
	if id == "" {
		return "", errNoSession
	}
	return ownScope(ctx, "session", id), nil
}

// User is a [CallerFunc]: the user whose bearer token was verified. With [SameCall], a user cannot make
// the same call again in another conversation before the TTL of the guard has passed.
func User(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
	if req.Extra == nil || req.Extra.TokenInfo == nil || req.Extra.TokenInfo.UserID == "" {
		return "", fmt.Errorf("scope-unresolved: %w", idempotency.ErrUnauthenticated)
	}
	return ownScope(ctx, "user", req.Extra.TokenInfo.UserID), nil
}

// Conversation returns a [CallerFunc] for a server with a single client, on standard input and output for
// example: all calls are of one scope. Name it after the conversation if the server learns of it, and
// otherwise after something that a new conversation does not share.
func Conversation(name string) CallerFunc {
	return func(ctx context.Context, _ *mcp.CallToolRequest) (string, error) {
		return ownScope(ctx, "conversation", name), nil
	}
}

// ownScopes is the key under which the context of a CallerFunc has room for the scopes that those of
// this package return for the call.
type ownScopes struct{}

func ownScope(ctx context.Context, kind, name string) string {
	scope := reserved.Scope("mcp-"+kind, name)
	if own, ok := ctx.Value(ownScopes{}).(*[]string); ok {
		*own = append(*own, scope)
	}
	return scope
}

var errReservedScope = errors.New("scope-unresolved: the CallerFunc returned a scope that begins with a zero byte; only one of this package may")

// scopeOf asks for the scope of a call.
func (f CallerFunc) scopeOf(ctx context.Context, req *mcp.CallToolRequest) (string, error) {
	var own []string
	scope, err := f(context.WithValue(ctx, ownScopes{}, &own), req)
	if err == nil && reserved.Is(scope) && !slices.Contains(own, scope) {
		err = errReservedScope
	}
	return scope, err
}

// A KeyFunc says which calls of a caller are one; see [SameCall], [MetaKey] and [ArgumentKey]. The zero
// KeyFunc cannot be used.
type KeyFunc struct {
	of func(*mcp.CallToolRequest) (string, error)
	// arguments says that calls with the same arguments are one.
	arguments bool
}

// KeyMeta is the member of a call's _meta that a client can put a key in.
const KeyMeta = "idempotency-key"

// SameCall makes one of all calls of a tool with the same arguments, in the meaning of JSON and not in
// its spelling. It needs nothing of the client. It suits tools whose repetition is a mistake, such as a
// payment of an invoice. It does not suit those of which somebody may want two, such as adding one to a
// counter: for these, use [ArgumentKey] or [MetaKey]. If the client sends a key in _meta, that counts
// instead.
func SameCall() KeyFunc {
	return KeyFunc{arguments: true, of: func(req *mcp.CallToolRequest) (string, error) {
		if key, err := keyFromMeta(req); key != "" || err != nil {
			return key, err
		}
		sum := sha256.Sum256(payloadOf(req))
		return "call:" + base64.RawURLEncoding.EncodeToString(sum[:]), nil
	}}
}

// MetaKey takes the key from the member idempotency-key of the call's _meta. A call without it runs
// unprotected.
func MetaKey() KeyFunc { return KeyFunc{of: keyFromMeta} }

// ArgumentKey takes the key from an argument of the tool, a string of at most 250 bytes that the model
// chooses: describe it in the schema, as "a new value for each new payment, and the same value when you
// repeat a call". Make it required there: a call without it runs unprotected. An empty one is refused.
// If the client sends a key in _meta, that counts instead. A caller's keys are those of all its tools: a
// value that was used with one tool is refused by another.
func ArgumentKey(name string) KeyFunc {
	return KeyFunc{arguments: true, of: func(req *mcp.CallToolRequest) (string, error) {
		if key, err := keyFromMeta(req); key != "" || err != nil {
			return key, err
		}
		var arguments map[string]json.RawMessage
		if len(req.Params.Arguments) > 0 {
			if err := json.Unmarshal(req.Params.Arguments, &arguments); err != nil {
				return "", err
			}
		}
		if arguments[name] == nil {
			return "", nil
		}
		var key string
		if err := json.Unmarshal(arguments[name], &key); err != nil || key == "" {
			return "", fmt.Errorf("the argument %s is not a string, or is empty", name)
		}
		return checked(key)
	}}
}

func keyFromMeta(req *mcp.CallToolRequest) (string, error) {
	value, ok := req.Params.Meta[KeyMeta]
	if !ok {
		return "", nil
	}
	key, ok := value.(string)
	if !ok || key == "" {
		return "", errors.New("the key in _meta is not a string, or is empty")
	}
	return checked(key)
}

// maxKey is the longest key, in bytes.
const maxKey = 250

func checked(key string) (string, error) {
	if len(key) > maxKey {
		return "", fmt.Errorf("the key has more than %d bytes", maxKey)
	}
	return "key:" + key, nil // never that of a call without one
}

// payloadOf returns what a key is bound to: the tool, and its arguments in canonical form. Arguments that
// parsers read in different ways count byte for byte.
func payloadOf(req *mcp.CallToolRequest) []byte {
	payload := fmt.Appendf(nil, "%q\n", req.Params.Name)
	if canonical, err := jcs.Canonical(payload, req.Params.Arguments); err == nil {
		return canonical
	}
	return append(payload, req.Params.Arguments...)
}
