// Package mcpidempotency makes the tools of an MCP server safe to call again.
//
// Agents repeat calls: because a connection broke, because a turn was run again, or because the model
// is not sure whether it has called. [AddTool] adds a tool whose calls run under [idempotency.Do]. A
// call that is repeated gets the first result, and the tool has had one effect.
//
// The limits are those of the library: a process that dies between the effect of a tool and its record
// leaves an unknown outcome. Use steps and derived keys in the tool, or idempotency.Hold, which makes
// such a call answer that it needs review.
package mcpidempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/problem"
)

// AddTool adds a tool to a server, as [mcp.AddTool] does, and runs its calls under guard.
//
// caller says whose calls they are: [Session], [User], [Conversation], or a function of your own. key
// says which calls are one: [SameCall], [ArgumentKey] or [MetaKey]. A call without a key runs
// unprotected, or is refused if the guard has idempotency.WithRequired. The guard reports it in both
// cases. Beside a guard with idempotency.WithShadow, every call runs.
//
// AddTool sets the annotation IdempotentHint of the tool if that is true: if a call with the same
// arguments has no further effect, for as long as the TTL of the guard. It leaves the annotation as it
// is with MetaKey, and beside a guard with idempotency.WithShadow.
//
// A result without IsError is recorded, and so is an error marked with [idempotency.Permanent]. Any
// other error, a result with IsError and a panic leave the outcome unknown: the guard's recovery policy
// decides about the next call, which usually runs again. The tool can say otherwise with
// [idempotency.Operation.SetOutcome]. A panic becomes an error of the call. A result that asks the
// client for more input is not recorded, and the call that follows it runs.
//
// A call that is cancelled ends the context of its tool. What the tool returns then counts as always.
// A replay sends no notifications of progress.
//
// The output of the tool is recorded as JSON: its type must be able to read what it writes. Otherwise
// calls that are repeated are told that the result cannot be read.
//
// A replayed result has [ReplayedMeta] in its _meta; a replayed error has only its text. A refusal is an
// error of the call. Its text begins with a code, and tells the model what to do: in-flight, key-reused,
// outcome-unknown and so on. AddTool panics as mcp.AddTool does, and if one of its arguments is missing.
//
// A key does not tell servers apart. Servers that share a store need prefixes of their own: with the same
// caller, tool and arguments, the second one would answer with the result of the first.
func AddTool[In, Out any](server *mcp.Server, guard *idempotency.Guard, caller CallerFunc, key KeyFunc, tool *mcp.Tool, handler mcp.ToolHandlerFor[In, Out]) {
	if server == nil || guard == nil || caller == nil || key.of == nil || tool == nil || handler == nil {
		panic("mcpidempotency: AddTool: an argument is missing")
	}
	told := *tool
	if key.arguments && !adapter.For(guard).OnlyLooks() {
		hints := mcp.ToolAnnotations{}
		if tool.Annotations != nil {
			hints = *tool.Annotations
		}
		hints.IdempotentHint = true
		told.Annotations = &hints
	}
	c := &calls[In, Out]{guard, caller, key, guard.Policy().Required, handler}
	mcp.AddTool(server, &told, c.handle)
}

// ReplayedMeta is the member of a result's _meta that marks a replay. Its value is true.
const ReplayedMeta = "idempotent-replayed"

// calls are the calls of one tool.
type calls[In, Out any] struct {
	guard  *idempotency.Guard
	caller CallerFunc
	key    KeyFunc
	// required says that a call without a key is refused.
	required bool
	handler  mcp.ToolHandlerFor[In, Out]
}

// An answer is what is recorded of a call.
type answer[Out any] struct {
	Result *mcp.CallToolResult `json:"result,omitempty"`
	Output Out                 `json:"output"`
	// Told says that the result has content of its own, if only none. Otherwise the SDK makes it of
	// the output. JSON does not tell the two apart.
	Told bool `json:"told,omitempty"`
}

// result returns the result of a replay.
func (a *answer[Out]) result() *mcp.CallToolResult {
	r := a.Result
	if r == nil {
		r = &mcp.CallToolResult{}
	}
	if !a.Told {
		r.Content = nil
	}
	if r.Meta == nil {
		r.Meta = mcp.Meta{}
	}
	r.Meta[ReplayedMeta] = true
	return r
}

// exactJSON is the codec of answers. It keeps numbers as they are where the output has no type for them.
type exactJSON struct{}

func (exactJSON) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (exactJSON) Unmarshal(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

var errKeyMissing = errors.New("key-missing: this tool refuses calls without a key. Nothing was done. " +
	"Make the call with a new key, and use the same key when you repeat it")

// errNotFinal stands for a result that is not definite, and is handed on as it is.
var errNotFinal = errors.New("mcpidempotency: the tool has answered with an error or a question")

func (c *calls[In, Out]) handle(ctx context.Context, req *mcp.CallToolRequest, in In) (_ *mcp.CallToolResult, _ Out, err error) {
	value, err := c.key.of(req)
	switch {
	case err != nil:
		return c.refuse(ctx, req, in, problem.KeyInvalid, nil, fmt.Errorf("key-invalid: %w", err))
	case value == "" && c.required:
		return c.refuse(ctx, req, in, problem.KeyMissing, nil, errKeyMissing)
	case value == "":
		adapter.For(c.guard).ReportBypassed(ctx, nil)
		return c.bare(ctx, req, in)
	}
	scope, err := c.caller.scopeOf(ctx, req)
	if err != nil {
		return c.refuse(ctx, req, in, codeOfScope(err), err, err)
	}
	var none Out
	var own answer[Out] // which counts if the tool runs
	var failed error    // likewise
	ran, running := false, false
	// A panic goes through Do, for which it is another end of a run than an error: what the tool has said of the
	// outcome does not count.
	defer recovered(&err, &running)
	recorded, result, err := idempotency.Do(ctx, c.guard, idempotency.Key{Scope: scope, Value: value},
		func(ctx context.Context) (answer[Out], error) {
			ran, running = true, true
			own, failed = c.run(ctx, req, in)
			running = false
			return own, failed
		}, idempotency.WithPayload(payloadOf(req)), idempotency.WithCodec(exactJSON{}))
	switch {
	case errors.Is(err, errNotFinal):
		return own.Result, own.Output, nil
	case ran && failed == nil && !result.Replayed && result.Code == "" && (err == nil || result.Outcome == idempotency.Final):
		return own.Result, own.Output, nil // also if it is recorded, and cannot be decoded
	case err != nil:
		return nil, none, advised(result, err, ran)
	}
	return recorded.result(), recorded.Output, nil
}

// refuse reports a call that is refused before it comes to Do. Beside a guard that only looks on, it
// runs all the same. The cause is nil where the mistake is the client's.
func (c *calls[In, Out]) refuse(ctx context.Context, req *mcp.CallToolRequest, in In, code problem.Code, cause, answer error) (*mcp.CallToolResult, Out, error) {
	adapter.For(c.guard).ReportRefused(ctx, "", code, cause)
	if adapter.For(c.guard).OnlyLooks() {
		return c.bare(ctx, req, in)
	}
	var none Out
	return nil, none, answer
}

// codeOfScope returns the code of a call whose caller is not known.
func codeOfScope(err error) problem.Code {
	switch {
	case errors.Is(err, idempotency.ErrUnauthenticated):
		return problem.Unauthenticated
	case errors.Is(err, idempotency.ErrTryLater):
		return problem.TryLater
	default:
		return problem.ScopeUnresolved
	}
}

// bare calls the tool without the guard.
func (c *calls[In, Out]) bare(ctx context.Context, req *mcp.CallToolRequest, in In) (result *mcp.CallToolResult, out Out, err error) {
	running := true
	defer recovered(&err, &running)
	return c.handler(ctx, req, in)
}

// recovered, deferred, makes the error of a panic of a tool, if that is running.
func recovered(err *error, running *bool) {
	if !*running {
		return
	}
	if p := recover(); p != nil {
		*err = &PanicError{p, debug.Stack()}
	}
}

// run calls the tool.
func (c *calls[In, Out]) run(ctx context.Context, req *mcp.CallToolRequest, in In) (a answer[Out], err error) {
	a.Result, a.Output, err = c.handler(ctx, req, in)
	a.Told = a.Result != nil && a.Result.Content != nil
	switch {
	case err != nil || a.Result == nil:
		return a, err
	case a.Result.InputRequests != nil:
		if op, ok := idempotency.FromContext(ctx); ok {
			op.SetOutcome(idempotency.NotExecuted)
		}
		return a, errNotFinal
	case a.Result.IsError:
		return a, errNotFinal
	}
	return a, nil
}

// A PanicError is the error of a call whose tool panicked. The panic itself would end a server on
// standard input and output, and all its calls.
type PanicError struct {
	// Value is what the tool panicked with, and Stack where.
	Value any
	Stack []byte
}

// Error says that the tool panicked. It does not say with what, because the text goes to the model.
func (e *PanicError) Error() string { return "the tool panicked" }

// advice is what a model is told of an error of Do. The model sees nothing else of it.
var advice = []struct {
	err  error
	text string
}{
	{idempotency.ErrInFlight, "in-flight: this very call is still running. Wait, then make the same call again to get its result."},
	{idempotency.ErrKeyReused, "key-reused: this key was used for a call with other arguments, or of another tool. Nothing was done. Use a new key for a new call."},
	{idempotency.ErrHeld, "outcome-unknown: needs review. It is not known whether an earlier call had its effect. Do not try again, also not in another way; tell a person."},
	{idempotency.ErrResultNotKept, "response-not-kept: this call was made before and has succeeded, but its result was too large to keep. Do not make it again."},
	{idempotency.ErrUnreadableHere, storeUnavailable},
	{idempotency.ErrCorrupt, "answer-unreadable: needs review. This call was made before, and its result cannot be read. Do not try again; tell a person."},
	{idempotency.ErrShutdown, "shutting-down: nothing was done. Make the same call again later."},
	{idempotency.ErrCommitUnknown, "no-answer: it is not known whether the call had its effect. Make the same call again: it is safe."},
}

const storeUnavailable = "store-unavailable: nothing was done. Make the same call again later."

// A refusal is the error of a call that did not run.
type refusal struct {
	text string
	err  error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

// advised adds advice to the errors of Do. Those of the tool itself pass, be they of this run or of an
// earlier one: what such an error says of another key is not said of this call. What else keeps a tool
// from running is the store's, whose words are not for the model.
func advised(result idempotency.Result, err error, ran bool) error {
	if errors.Is(err, idempotency.ErrPermanent) || ran && result.Code == "" {
		return err
	}
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return &refusal{a.text, err}
		}
	}
	return &refusal{storeUnavailable, err}
}
