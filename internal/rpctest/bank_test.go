package rpctest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.com/idempotency/internal/guardtest"

	"google.golang.org/protobuf/proto"

	"example.com/idempotency"
	"example.com/idempotency/internal/rpctest/bankv1"
)

// The codes of gRPC that the tests name.
const (
	ok                 = 0
	canceled           = 1
	unknown            = 2
	invalidArgument    = 3
	deadlineExceeded   = 4
	notFound           = 5
	alreadyExists      = 6
	permissionDenied   = 7
	resourceExhausted  = 8
	failedPrecondition = 9
	aborted            = 10
	outOfRange         = 11
	unimplemented      = 12
	internalError      = 13
	unavailable        = 14
	dataLoss           = 15
	unauthenticated    = 16
)

// A reply is what the handler answers, in the words of no framework.
type reply struct {
	res             *bankv1.PayResponse
	code            uint32
	message         string
	details         []proto.Message
	plain           error // an error that has no code
	header, trailer map[string][]string
}

// A bank is what the server does, and what it has done.
type bank struct {
	entered, release chan struct{} // of the case "slow"
	hungUp           chan struct{} // has a value when the context of a call has ended
	giveUp           chan struct{} // closed by a test to end what waits for its context

	mu       sync.Mutex
	cases    map[string]testCase
	runs     map[string]int
	attempts map[string][]int    // by the name of the case, and by the key
	keys     map[string][]string // derived in the steps of a case
}

func newBank() *bank {
	b := &bank{
		entered: make(chan struct{}, 8), release: make(chan struct{}),
		hungUp: make(chan struct{}, 64), giveUp: make(chan struct{}),
		cases: map[string]testCase{}, runs: map[string]int{}, attempts: map[string][]int{}, keys: map[string][]string{},
	}
	for _, c := range cases() {
		b.cases[c.name] = c
	}
	return b
}

func (b *bank) ran(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[name]
}

func (b *bank) attemptsOf(nameOrKey string) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.attempts[nameOrKey])
}

// watch tells when the context of a call has ended, whatever becomes of its run.
func (b *bank) watch(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		select {
		case b.hungUp <- struct{}{}:
		default:
		}
	})
}

// run is the handler.
func (b *bank) run(ctx context.Context, req *bankv1.PayRequest) reply {
	name := req.GetCase()
	b.mu.Lock()
	b.runs[name]++
	n := b.runs[name]
	if op, ok := idempotency.FromContext(ctx); ok {
		for _, of := range []string{name, op.Key().Value} {
			b.attempts[of] = append(b.attempts[of], op.Attempt())
		}
	}
	c := b.cases[name]
	b.mu.Unlock()
	r := reply{res: &bankv1.PayResponse{Id: "payment", Run: int32(n)}}
	switch name {
	case "slow":
		b.entered <- struct{}{}
		select {
		case <-b.release:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return reply{plain: ctx.Err()}
		}
	case "until the deadline":
		if _, ok := ctx.Deadline(); ok {
			select {
			case <-ctx.Done():
			case <-b.giveUp:
			}
			return reply{plain: context.DeadlineExceeded}
		}
	case "fails once":
		if n == 1 {
			return reply{code: unavailable, message: "not now"}
		}
	}
	if c.run != nil {
		c.run(ctx, b, &r)
	}
	return r
}

// An answer is what a client has got.
type answer struct {
	Code            uint32
	Message         string
	Details         []string
	Header, Trailer map[string][]string
	Response        string
	Replayed        bool
	Problem         string
}

// A call is what a client sends.
type call struct {
	method string // Pay if empty
	md     map[string][]string
	req    *bankv1.PayRequest
}

// A client sends a call.
type client func(ctx context.Context, c call) answer

// A transport is a framework with one of its protocols.
type transport struct {
	name string
	// serve starts a server until the end of the test, and returns a client of it. The guard is nil
	// for the bare server.
	serve func(t *testing.T, b *bank, guard *idempotency.Guard, s settings) client
}

// settings are those of a protected server.
type settings struct {
	streams bool
	scope   func(context.Context) (string, error)
	outcome func(error) idempotency.Outcome
	hold    []string // procedures under Hold
}

func keyed(key, name string) call {
	return call{md: map[string][]string{"idempotency-key": {key}, "tenant": {"acme"}}, req: &bankv1.PayRequest{Case: name, Amount: 100}}
}

// fields returns the fields that a framework has not set itself, with lower-case names.
func fields(h map[string][]string) map[string][]string {
	kept := map[string][]string{}
	for name, values := range h {
		name = strings.ToLower(name)
		switch name {
		case "date", "content-type", "content-length", "content-encoding", "grpc-encoding", "grpc-accept-encoding", "accept-encoding", "vary",
			"idempotent-replayed", "trailer", "grpc-status", "grpc-message", "grpc-status-details-bin":
			continue
		}
		kept[name] = append(kept[name], values...)
	}
	return kept
}

func first(h map[string][]string, name string) string {
	for n, values := range h {
		if strings.EqualFold(n, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

func newGuard(t *testing.T, store idempotency.Store, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	return guardtest.NewGuardOf(t, store, idempotency.SharedScope, append(opts, quiet)...)
}

// text is a form of a message that can be compared. That of package prototext is different in each
// binary.
func text(m proto.Message) string {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %q", m.ProtoReflect().Descriptor().FullName(), data)
}
