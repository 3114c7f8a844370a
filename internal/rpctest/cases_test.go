package rpctest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/idempotency"
	"example.com/idempotency/internal/rpctest/bankv1"
)

var quiet = idempotency.WithLogger(slog.New(slog.DiscardHandler))

// A fate is what becomes of a call that is sent a second time.
type fate int

const (
	replayed fate = iota
	runsAgain
	notKept
)

// A testCase is one call.
type testCase struct {
	name string
	fate fate
	run  func(ctx context.Context, b *bank, r *reply)
	// instead says that the protected client gets another answer than the bare one, which is tested
	// elsewhere.
	instead uint32
	// cut says that the client gets no answer that could be compared.
	cut bool
}

const limit = 1 << 20 // of an answer that is recorded

func refusal(code uint32, fate fate) testCase {
	return testCase{name: fmt.Sprintf("code %d", code), fate: fate, run: func(_ context.Context, _ *bank, r *reply) {
		*r = reply{
			code: code, message: "no: “" + fmt.Sprint(code) + "” %",
			details: []proto.Message{
				&errdetails.ErrorInfo{Reason: "LIMIT", Domain: "bank.example", Metadata: map[string]string{"limit": "5", "of": "9"}},
				&bankv1.PayResponse{Id: "a message of the program"},
			},
			header:  map[string][]string{"x-header": {"of the error"}},
			trailer: map[string][]string{"x-trailer": {"of the error"}},
		}
	}}
}

func answers(name string, f func(r *reply)) testCase {
	return testCase{name: name, run: func(_ context.Context, _ *bank, r *reply) { f(r) }}
}

// cases returns all calls that are compared.
func cases() []testCase {
	large := strings.Repeat("x", 100<<10)
	note := ""
	all := []testCase{
		answers("plain", func(*reply) {}),
		answers("empty", func(r *reply) { r.res = &bankv1.PayResponse{} }),
		answers("map", func(r *reply) { r.res.Totals = map[string]int64{"a": 1, "b": -2, "c": 1 << 60} }),
		answers("optional that is empty", func(r *reply) { r.res.Note = &note }),
		answers("every byte", func(r *reply) {
			for i := range 256 {
				r.res.Blob = append(r.res.Blob, byte(i))
			}
		}),
		answers("unknown field", func(r *reply) { r.res.ProtoReflect().SetUnknown([]byte{0x9a, 0x06, 1, 'x'}) }),
		answers("large", func(r *reply) { r.res.Blob = []byte(large) }),
		answers("header", func(r *reply) { r.header = map[string][]string{"x-one": {"1"}} }),
		answers("header of many values", func(r *reply) { r.header = map[string][]string{"x-many": {"1", "2", "2"}} }),
		answers("trailer", func(r *reply) { r.trailer = map[string][]string{"x-one": {"1"}} }),
		answers("trailer of many values", func(r *reply) { r.trailer = map[string][]string{"x-many": {"1", "2", "2"}} }),
		answers("header at once", func(r *reply) {
			at := "header at once"
			r.res.Note, r.header = &at, map[string][]string{"x-one": {"1"}}
		}),
		answers("header and trailer", func(r *reply) {
			r.header, r.trailer = map[string][]string{"x-both": {"h"}}, map[string][]string{"x-both": {"t"}}
		}),
		answers("binary header", func(r *reply) { r.header = map[string][]string{"x-bytes-bin": {"\x00\xff\x80"}} }),
		answers("binary trailer", func(r *reply) { r.trailer = map[string][]string{"x-bytes-bin": {"\x00\xff\x80", "ok"}} }),
		answers("error without a message", func(r *reply) { *r = reply{code: notFound} }),
		answers("error without details", func(r *reply) { *r = reply{code: notFound, message: "no such account"} }),
		answers("error with a long message", func(r *reply) { *r = reply{code: outOfRange, message: strings.Repeat("long ", 500)} }),
		answers("error with many details", func(r *reply) {
			*r = reply{code: invalidArgument, message: "no"}
			for i := range 20 {
				r.details = append(r.details, &errdetails.DebugInfo{Detail: fmt.Sprint(i)})
			}
		}),
		answers("as large as may be kept", func(r *reply) {
			r.res, r.header = &bankv1.PayResponse{Blob: make([]byte, limit-4)}, map[string][]string{"x-one": {"1"}}
		}),
		{name: "too large to be kept", fate: notKept, run: func(_ context.Context, _ *bank, r *reply) {
			r.res = &bankv1.PayResponse{Blob: make([]byte, limit-3)}
		}},
		{name: "error without a code", fate: runsAgain, run: func(_ context.Context, _ *bank, r *reply) { *r = reply{plain: errors.New("boom")} }},
		{name: "end of a context", fate: runsAgain, run: func(_ context.Context, _ *bank, r *reply) {
			*r = reply{plain: fmt.Errorf("database: %w", context.DeadlineExceeded)}
		}},
		{name: "panic", fate: runsAgain, cut: true, run: func(context.Context, *bank, *reply) { panic("boom") }},
		{name: "the handler says that it is final", run: func(ctx context.Context, _ *bank, r *reply) {
			setOutcome(ctx, idempotency.Final)
			*r = reply{code: unavailable, message: "declined for good"}
		}},
		{name: "the handler says that nothing was done", fate: runsAgain, run: func(ctx context.Context, _ *bank, _ *reply) {
			setOutcome(ctx, idempotency.NotExecuted)
		}},
		{name: "refusal after an effect", fate: runsAgain, instead: unavailable, run: func(ctx context.Context, _ *bank, r *reply) {
			setOutcome(ctx, idempotency.Unknown)
			*r = reply{code: failedPrecondition, message: "no"}
		}},
		{name: "turned away after a step", fate: runsAgain, instead: unavailable, run: func(ctx context.Context, b *bank, r *reply) {
			_, _ = idempotency.Step(ctx, "charge", func(ctx context.Context) (int, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.keys["charge"] = append(b.keys["charge"], idempotency.DeriveKey(ctx, "charge"))
				return 1, nil
			})
			*r = reply{code: resourceExhausted, message: "no"}
		}},
		{name: "refusal of a guard behind", fate: runsAgain, run: func(_ context.Context, _ *bank, r *reply) {
			*r = reply{code: aborted, message: "in flight there", details: []proto.Message{
				&errdetails.ErrorInfo{Reason: "IN_FLIGHT", Domain: "idempotency"},
				&errdetails.RetryInfo{RetryDelay: durationpb.New(1)},
			}}
		}},
	}
	for code := uint32(canceled); code <= unauthenticated; code++ {
		f := runsAgain
		switch code {
		case invalidArgument, notFound, alreadyExists, permissionDenied, failedPrecondition, outOfRange, unimplemented:
			f = replayed
		}
		all = append(all, refusal(code, f))
	}
	return all
}

func setOutcome(ctx context.Context, o idempotency.Outcome) {
	if op, ok := idempotency.FromContext(ctx); ok {
		op.SetOutcome(o)
	}
}

// TestCalls sends each call to a bare server, to a protected one, and again.
func TestCalls(t *testing.T) {
	onEachTransport(t, func(t *testing.T, tr transport) {
		bareBank, b := newBank(), newBank()
		bare := tr.serve(t, bareBank, nil, settings{})
		protected := tr.serve(t, b, newGuard(t, idempotency.NewMemoryStore(), idempotency.WithLimits(idempotency.Limits{ResponseBody: limit})), settings{})
		compared := 0
		for _, c := range cases() {
			send := keyed("key of "+strings.ReplaceAll(c.name, " ", "-"), c.name)
			send.md["idempotency-key"][0] = `"` + send.md["idempotency-key"][0] + `"`
			want, got, again := bare(t.Context(), send), protected(t.Context(), send), protected(t.Context(), send)
			compared++
			switch {
			case c.cut:
			case c.instead != 0:
				require.Equal(t, c.instead, got.Code, c.name)
				require.Equal(t, "no-answer", got.Problem, c.name)
			default:
				require.Equal(t, want, got, c.name)
			}
			require.Equal(t, c.fate == replayed, again.Replayed, c.name)
			switch c.fate {
			case replayed:
				again.Replayed = false
				require.Equal(t, got, again, c.name)
				require.Equal(t, 1, b.ran(c.name), c.name)
			case runsAgain:
				require.Equal(t, 2, b.ran(c.name), c.name)
				require.Equal(t, []int{1, 2}, b.attemptsOf(c.name), c.name)
			case notKept:
				require.EqualValues(t, alreadyExists, again.Code, c.name)
				require.Equal(t, "response-not-kept", again.Problem, c.name)
				require.Equal(t, 1, b.ran(c.name), c.name)
			}
		}
		require.Len(t, b.keys["charge"], 1, "a step runs once in both attempts")
		t.Logf("%d calls", compared)
	})
}
