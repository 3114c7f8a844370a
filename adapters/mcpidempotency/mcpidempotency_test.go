package mcpidempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/mcpidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

type payment struct {
	Invoice string `json:"invoice"`
	Amount  int    `json:"amount"`
	Nonce   string `json:"nonce,omitempty"`
}

type receipt struct {
	Number int64 `json:"number"`
}

// A world is a server with a tool pay, and a client of it.
type world struct {
	guard *idempotency.Guard
	runs  atomic.Int64
	// pay is the tool, if it is not the one that counts its runs.
	pay     func(ctx context.Context, p payment) (*mcp.CallToolResult, error)
	session *mcp.ClientSession
}

func newWorld(t *testing.T, key mcpidempotency.KeyFunc, opts ...idempotency.Option) *world {
	t.Helper()
	return newWorldOn(t, idempotency.NewMemoryStore(), key, opts...)
}

func newWorldOn(t *testing.T, st idempotency.Store, key mcpidempotency.KeyFunc, opts ...idempotency.Option) *world {
	t.Helper()
	opts = append([]idempotency.Option{idempotency.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	guard, err := idempotency.New(st, idempotency.SharedScope, opts...)
	require.NoError(t, err)
	w := &world{guard: guard}
	w.session = w.connect(t, key, mcpidempotency.Conversation("test"))
	return w
}

// connect serves the tool in memory, and returns a client of it.
func (w *world) connect(t *testing.T, key mcpidempotency.KeyFunc, caller mcpidempotency.CallerFunc) *mcp.ClientSession {
	t.Helper()
	return dial(t, w.server(key, caller))
}

// dial returns a client of a server in memory.
func dial(t *testing.T, server *mcp.Server) *mcp.ClientSession {
	t.Helper()
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	_, err := server.Connect(t.Context(), serverEnd, nil)
	require.NoError(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), clientEnd, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func (w *world) server(key mcpidempotency.KeyFunc, caller mcpidempotency.CallerFunc) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	tool := &mcp.Tool{Name: "pay", Description: "pays an invoice", Annotations: &mcp.ToolAnnotations{Title: "Pay"}}
	mcpidempotency.AddTool(server, w.guard, caller, key, tool,
		func(ctx context.Context, _ *mcp.CallToolRequest, p payment) (*mcp.CallToolResult, receipt, error) {
			n := w.runs.Add(1)
			if w.pay != nil {
				res, err := w.pay(ctx, p)
				return res, receipt{n}, err
			}
			return nil, receipt{n}, nil
		})
	return server
}

// call calls the tool with arguments in JSON.
func call(t *testing.T, session *mcp.ClientSession, arguments string, meta mcp.Meta) *mcp.CallToolResult {
	t.Helper()
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Meta: maps.Clone(meta), Name: "pay", Arguments: rawJSON(arguments)})
	require.NoError(t, err)
	return res
}

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	require.NotEmpty(t, res.Content)
	return res.Content[0].(*mcp.TextContent).Text
}

// requireRefused checks that a call was refused with a code, and that the tool has not run.
func (w *world) requireRefused(t *testing.T, res *mcp.CallToolResult, code problem.Code) {
	t.Helper()
	require.True(t, res.IsError)
	require.True(t, strings.HasPrefix(text(t, res), string(code)+": "), text(t, res))
	require.Zero(t, w.runs.Load())
}

func replayed(res *mcp.CallToolResult) bool { return res.Meta[mcpidempotency.ReplayedMeta] == true }

const invoice = `{"invoice":"i-1","amount":10}`

// A call that is made again gets the first result, however it is spelt, and the tool runs once.
func TestSameCall(t *testing.T) {
	w := newWorld(t, mcpidempotency.SameCall())
	first := call(t, w.session, invoice, nil)
	require.False(t, first.IsError)
	require.False(t, replayed(first))
	again := call(t, w.session, `{ "amount": 1.0e1, "invoice": "i-1" }`, nil)
	require.True(t, replayed(again))
	require.Equal(t, first.Content, again.Content)
	require.Equal(t, first.StructuredContent, again.StructuredContent)
	require.EqualValues(t, 1, w.runs.Load())

	require.False(t, replayed(call(t, w.session, `{"invoice":"i-2","amount":10}`, nil)))
	require.EqualValues(t, 2, w.runs.Load())

	// A client that has a key of its own can mean a second payment.
	second := mcp.Meta{mcpidempotency.KeyMeta: "second"}
	require.False(t, replayed(call(t, w.session, invoice, second)))
	require.True(t, replayed(call(t, w.session, invoice, second)))
	require.EqualValues(t, 3, w.runs.Load())
}

// A key that the model chooses tells two payments of the same amount apart, and is bound to one.
func TestArgumentKey(t *testing.T) {
	w := newWorld(t, mcpidempotency.ArgumentKey("nonce"))
	a, b := `{"invoice":"i-1","amount":10,"nonce":"a"}`, `{"invoice":"i-1","amount":10,"nonce":"b"}`
	require.False(t, replayed(call(t, w.session, a, nil)))
	require.True(t, replayed(call(t, w.session, a, nil)))
	require.False(t, replayed(call(t, w.session, b, nil)))
	reused := call(t, w.session, `{"invoice":"i-1","amount":99,"nonce":"a"}`, nil)
	require.True(t, reused.IsError)
	require.True(t, strings.HasPrefix(text(t, reused), "key-reused: "))
	require.EqualValues(t, 2, w.runs.Load())
	require.False(t, replayed(call(t, w.session, invoice, nil)), "without a key")
	require.False(t, replayed(call(t, w.session, invoice, nil)))
}

// A call whose key is malformed does not run.
func TestMalformedKeys(t *testing.T) {
	w := newWorld(t, mcpidempotency.SameCall())
	for _, key := range []any{1, "", nil, strings.Repeat("x", 251)} {
		res := call(t, w.session, invoice, mcp.Meta{mcpidempotency.KeyMeta: key})
		w.requireRefused(t, res, problem.KeyInvalid)
	}
}

// What does not come to Do is reported all the same. Beside a guard that only looks on, it runs.
func TestCallsThatAreNotClaimedAreReported(t *testing.T) {
	nobody := errors.New("the directory is down")
	for name, test := range map[string]struct {
		required bool
		meta     mcp.Meta
		scope    error
		kind     event.Kind
		code     problem.Code
	}{
		"no key":                   {kind: event.Bypassed},
		"no key, and no caller":    {scope: nobody, kind: event.Bypassed},
		"no key where one must be": {required: true, kind: event.Refused, code: problem.KeyMissing},
		"malformed key":            {meta: mcp.Meta{mcpidempotency.KeyMeta: 1}, kind: event.Refused, code: problem.KeyInvalid},
		"no caller":                {meta: mcp.Meta{mcpidempotency.KeyMeta: "k"}, scope: nobody, kind: event.Refused, code: problem.ScopeUnresolved},
		"unknown caller": {
			meta: mcp.Meta{mcpidempotency.KeyMeta: "k"}, scope: idempotency.ErrUnauthenticated,
			kind: event.Refused, code: problem.Unauthenticated,
		},
		"caller not known yet": {
			meta: mcp.Meta{mcpidempotency.KeyMeta: "k"}, scope: idempotency.ErrTryLater,
			kind: event.Refused, code: problem.TryLater,
		},
	} {
		for _, shadow := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/shadow=", shadow), func(t *testing.T) {
				var events []event.Event
				w := newWorld(t, mcpidempotency.MetaKey(), idempotency.WithRequired(test.required), idempotency.WithShadow(shadow),
					idempotency.WithRoute("tool pay"), idempotency.WithObserver(func(_ context.Context, e event.Event) { events = append(events, e) }))
				agent := w.connect(t, mcpidempotency.MetaKey(), func(context.Context, *mcp.CallToolRequest) (string, error) { return "", test.scope })
				res := call(t, agent, invoice, test.meta)
				require.Equal(t, test.kind == event.Refused && !shadow, res.IsError)
				require.Equal(t, res.IsError, w.runs.Load() == 0)
				want := event.Event{Kind: test.kind, Route: "tool pay", Code: test.code}
				if shadow {
					want.Kind, want.Would = event.Shadow, test.kind
				}
				if test.kind == event.Refused {
					want.Err = test.scope
				}
				require.Equal(t, []event.Event{want}, events)
			})
		}
	}
}

// A model that leaves its key empty has not said that it wants no protection.
func TestEmptyArgumentKey(t *testing.T) {
	w := newWorld(t, mcpidempotency.ArgumentKey("nonce"))
	res := call(t, w.session, `{"invoice":"i-1","amount":10,"nonce":""}`, nil)
	w.requireRefused(t, res, problem.KeyInvalid)
}

// A guard that requires keys refuses calls without one.
func TestRequiredKey(t *testing.T) {
	for key, field := range map[*mcpidempotency.KeyFunc]string{
		new(mcpidempotency.ArgumentKey("nonce")): `,"nonce":"a"`, new(mcpidempotency.MetaKey()): "",
	} {
		w := newWorld(t, *key, idempotency.WithRequired(true))
		res := call(t, w.session, invoice, nil)
		w.requireRefused(t, res, problem.KeyMissing)
		var meta mcp.Meta
		if field == "" {
			meta = mcp.Meta{mcpidempotency.KeyMeta: "a"}
		}
		require.False(t, call(t, w.session, `{"invoice":"i-1","amount":10`+field+`}`, meta).IsError)
	}
}

// What a tool says of a key that it has used itself is not said of its call.
func TestErrorAboutAnotherKey(t *testing.T) {
	w := newWorld(t, mcpidempotency.SameCall())
	for _, err := range []error{idempotency.ErrResultNotKept, idempotency.ErrHeld, idempotency.ErrKeyReused} {
		w.pay = func(context.Context, payment) (*mcp.CallToolResult, error) {
			return nil, fmt.Errorf("the report: %w", err)
		}
		require.Equal(t, "the report: "+err.Error(), text(t, call(t, w.session, invoice, nil)))
	}
	require.EqualValues(t, 3, w.runs.Load(), "it is not done")
}

// The server tells clients which tools are safe to call again, and only of those.
func TestIdempotentHint(t *testing.T) {
	for key, want := range map[*mcpidempotency.KeyFunc]bool{
		new(mcpidempotency.SameCall()): true, new(mcpidempotency.ArgumentKey("nonce")): true, new(mcpidempotency.MetaKey()): false,
	} {
		w := newWorld(t, *key)
		tools, err := w.session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, want, tools.Tools[0].Annotations.IdempotentHint)
		require.Equal(t, "Pay", tools.Tools[0].Annotations.Title)
	}
	shadow := newWorld(t, mcpidempotency.SameCall(), idempotency.WithShadow(true))
	tools, err := shadow.session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, tools.Tools[0].Annotations.IdempotentHint, "nothing is replayed")

	w := newWorld(t, mcpidempotency.MetaKey())
	require.False(t, replayed(call(t, w.session, invoice, nil)))
	require.False(t, replayed(call(t, w.session, invoice, nil)), "it has no key")
	key := mcp.Meta{mcpidempotency.KeyMeta: "k"}
	require.False(t, replayed(call(t, w.session, invoice, key)))
	require.True(t, replayed(call(t, w.session, invoice, key)))
}

// After a panic nobody knows what was done, whatever the tool has said before.
func TestPanicEndsWhatTheToolHasSaid(t *testing.T) {
	for _, said := range []idempotency.Outcome{idempotency.Final, idempotency.NotExecuted} {
		for recovery, want := range map[idempotency.Recovery]int64{idempotency.Rerun: 3, idempotency.Hold: 1} {
			w := newWorld(t, mcpidempotency.SameCall(), idempotency.WithRecovery(recovery))
			w.pay = func(ctx context.Context, _ payment) (*mcp.CallToolResult, error) {
				op, _ := idempotency.FromContext(ctx)
				op.SetOutcome(said)
				panic("secret")
			}
			for range 3 {
				require.True(t, call(t, w.session, invoice, nil).IsError)
			}
			require.Equal(t, want, w.runs.Load(), "%v %v", said, recovery)
		}
	}
}

// What is not definite is not recorded. What may have happened needs review under Hold.
func TestFailures(t *testing.T) {
	down := errors.New("provider is down")
	ends := map[string]struct {
		pay      func(context.Context, payment) (*mcp.CallToolResult, error)
		text     string
		recorded bool
	}{
		"error":     {func(context.Context, payment) (*mcp.CallToolResult, error) { return nil, down }, "provider is down", false},
		"panic":     {func(context.Context, payment) (*mcp.CallToolResult, error) { panic("secret") }, "the tool panicked", false},
		"permanent": {func(context.Context, payment) (*mcp.CallToolResult, error) { return nil, idempotency.Permanent(down) }, "provider is down", true},
		"result": {func(context.Context, payment) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no money"}}}, nil
		}, "no money", false},
	}
	for name, end := range ends {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			t.Run(name+"/"+recovery.String(), func(t *testing.T) {
				w := newWorld(t, mcpidempotency.SameCall(), idempotency.WithRecovery(recovery))
				w.pay = end.pay
				first := call(t, w.session, invoice, nil)
				require.True(t, first.IsError)
				require.Equal(t, end.text, text(t, first))
				w.pay = nil
				again := call(t, w.session, invoice, nil)
				switch {
				case end.recorded:
					require.Equal(t, end.text, text(t, again))
					require.EqualValues(t, 1, w.runs.Load())
				case recovery == idempotency.Hold:
					require.True(t, again.IsError)
					require.Contains(t, text(t, again), "needs review")
					require.EqualValues(t, 1, w.runs.Load())
				default:
					require.False(t, again.IsError)
					require.EqualValues(t, 2, w.runs.Load())
				}
			})
		}
	}
}

// While a call is running, the same call is told to wait, and a tool has its run.
func TestCallInFlight(t *testing.T) {
	w := newWorld(t, mcpidempotency.SameCall())
	w.pay = func(ctx context.Context, _ payment) (*mcp.CallToolResult, error) {
		op, ok := idempotency.FromContext(ctx)
		require.True(t, ok)
		require.Equal(t, 1, op.Attempt())
		res := call(t, w.session, invoice, nil)
		require.True(t, strings.HasPrefix(text(t, res), "in-flight: "))
		return nil, nil
	}
	require.False(t, call(t, w.session, invoice, nil).IsError)
	require.EqualValues(t, 1, w.runs.Load())
}

// serveHTTP serves the tool over HTTP, and returns a function that begins a conversation.
func (w *world) serveHTTP(t *testing.T, stateless bool) (connect func() *mcp.ClientSession) {
	t.Helper()
	server := w.server(mcpidempotency.SameCall(), mcpidempotency.Session)
	httpServer := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless}))
	t.Cleanup(httpServer.Close)
	return func() *mcp.ClientSession {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: httpServer.URL, DisableStandaloneSSE: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = session.Close() })
		return session
	}
}

// Over HTTP, two conversations never meet.
func TestConversationsAreToldApart(t *testing.T) {
	w := newWorld(t, mcpidempotency.SameCall())
	connect := w.serveHTTP(t, false)
	one, two := connect(), connect()
	require.False(t, replayed(call(t, one, invoice, nil)))
	require.True(t, replayed(call(t, one, invoice, nil)))
	require.False(t, replayed(call(t, two, invoice, nil)))
	require.EqualValues(t, 2, w.runs.Load())
}

// A call whose conversation is not known does not run.
func TestNoConversation(t *testing.T) {
	w := newWorld(t, mcpidempotency.SameCall())
	res := call(t, w.serveHTTP(t, true)(), invoice, nil)
	w.requireRefused(t, res, problem.ScopeUnresolved)
}

// brokenStore is a store whose server is away.
type brokenStore struct{ idempotency.Store }

func (brokenStore) Claim(context.Context, string, store.Claim) (store.Record, error) {
	return store.Record{}, errors.New("dial tcp 10.0.0.1: connection refused")
}

// A writeOnly is an output that JSON can write, and not read.
type writeOnly struct {
	At fmt.Stringer `json:"at"`
}

// A client gets of a protected tool what it gets of a bare one, and again.
func TestResultsAreThoseOfTheBareTool(t *testing.T) {
	output := map[string]any{"id": int64(9007199254740993), "price": 0.1}
	for name, test := range map[string]struct {
		result *mcp.CallToolResult
		output any
		lost   bool // for calls that are repeated
	}{
		"output alone":                        {nil, output, false},
		"result without content":              {&mcp.CallToolResult{}, output, false},
		"no content":                          {&mcp.CallToolResult{Content: []mcp.Content{}}, output, false},
		"content":                             {&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "paid"}}, Meta: mcp.Meta{"trace": "1"}}, nil, false},
		"output of a type that reads nothing": {nil, writeOnly{idempotency.Final}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(add func(*mcp.Server, *mcp.Tool)) []string {
				server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
				add(server, &mcp.Tool{Name: "pay"})
				session := dial(t, server)
				var answers []string
				for range 2 {
					res := call(t, session, invoice, nil)
					require.False(t, res.IsError && !test.lost)
					delete(res.Meta, mcpidempotency.ReplayedMeta)
					answer, err := json.Marshal(res)
					require.NoError(t, err)
					answers = append(answers, string(answer))
				}
				return answers
			}
			if test.lost {
				tool := func(context.Context, *mcp.CallToolRequest, payment) (*mcp.CallToolResult, writeOnly, error) {
					return test.result, test.output.(writeOnly), nil
				}
				compareTools(t, tool, ask, true)
				return
			}
			tool := func(context.Context, *mcp.CallToolRequest, payment) (*mcp.CallToolResult, any, error) {
				result := test.result
				if result != nil {
					own := *result
					result = &own
				}
				return result, test.output, nil
			}
			compareTools(t, tool, ask, false)
		})
	}
}

func compareTools[Out any](t *testing.T, tool mcp.ToolHandlerFor[payment, Out], ask func(func(*mcp.Server, *mcp.Tool)) []string, lost bool) {
	t.Helper()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	bare := ask(func(s *mcp.Server, of *mcp.Tool) { mcp.AddTool(s, of, tool) })
	got := ask(func(s *mcp.Server, of *mcp.Tool) {
		mcpidempotency.AddTool(s, guard, mcpidempotency.Conversation("test"), mcpidempotency.SameCall(), of, tool)
	})
	require.Equal(t, bare[0], got[0])
	if lost {
		require.Contains(t, got[1], "answer-unreadable: ")
		return
	}
	require.Equal(t, bare[1], got[1])
}

// Without its store, a tool does not run, and the model does not learn where the store is.
func TestStoreIsAway(t *testing.T) {
	w := newWorldOn(t, brokenStore{idempotency.NewMemoryStore()}, mcpidempotency.SameCall())
	res := call(t, w.session, invoice, nil)
	w.requireRefused(t, res, problem.StoreUnavailable)
	require.NotContains(t, text(t, res), "10.0.0.1")
}

func TestMissingArguments(t *testing.T) {
	w := newWorld(t, mcpidempotency.SameCall())
	require.Panics(t, func() { w.server(mcpidempotency.KeyFunc{}, mcpidempotency.Session) })
	require.Panics(t, func() { w.server(mcpidempotency.SameCall(), nil) })
}
