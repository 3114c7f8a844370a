package modeltest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// A history is what concurrent clients did and saw. Its methods may be called
// concurrently.
type history struct {
	seed  uint64
	clock clock
	order atomic.Int64 // counts beginnings and ends, which may share a moment

	mu   sync.Mutex
	keys map[string][]porcupine.Operation
	seen map[string]int // kinds of replies
}

// A clock is what the clients know of the store's clock: it is between two moments. If they
// can read the clock, the two are the same.
type clock struct {
	early, late func() time.Duration
	slack       time.Duration
}

// since is a clock that starts now and that everybody can read.
func since(slack time.Duration) clock {
	start := time.Now()
	read := func() time.Duration { return time.Since(start) }
	return clock{read, read, slack}
}

// An input is a call and when it may have had its effect.
type input struct {
	call
	at moment
}

// do makes a call and notes how it ended. send also returns how often the call may have
// been executed without a reply, because a client library that gets no reply sends it again.
func (h *history) do(client int, c call, send func(call) (got reply, lost int)) reply {
	at := moment{first: h.clock.early(), slack: h.clock.slack}
	began := h.order.Add(1)
	got, lost := send(c)
	ended := h.order.Add(1)
	at.last = h.clock.late()

	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[got.kind(c)]++
	if !got.lost {
		h.keys[c.key] = append(h.keys[c.key], porcupine.Operation{
			ClientId: client, Input: input{c, at}, Output: got, Call: began, Return: ended,
		})
	}
	// A lost call may have its effect at any time from now on, or never.
	at.last = never
	for range lost {
		h.keys[c.key] = append(h.keys[c.key], porcupine.Operation{
			ClientId: client, Input: input{c, at}, Output: reply{lost: true}, Call: began, Return: math.MaxInt64,
		})
	}
	return got
}

// end comes after all calls of a history. The calls that were lost and have had no effect
// by then come after it.
var end input

// operations returns what the checker has to explain.
func (h *history) operations(key string) []porcupine.Operation {
	last := h.order.Load()
	return append(h.keys[key], porcupine.Operation{Input: end, Output: reply{}, Call: last + 1, Return: last + 2})
}

// patience is how long a check may take before it counts as undecided.
const patience = 2 * time.Minute

// linearizable reports whether the contract explains the history. If it does not,
// linearizable returns the key that it does not explain.
func (h *history) linearizable(t testing.TB) (key string, ok bool) {
	t.Helper()
	for key, calls := range h.keys {
		result := porcupine.CheckOperationsTimeout(model, h.operations(key), patience)
		require.NotEqual(t, porcupine.Unknown, result, "SEED=%d: history of %d calls is not decided", h.seed, len(calls))
		if result == porcupine.Illegal {
			return key, false
		}
	}
	return "", true
}

// requireLinearizable fails the test if the contract does not explain the history, of which
// it then draws a picture, or if the history lacks one of the kinds.
func (h *history) requireLinearizable(t *testing.T, kinds ...string) {
	t.Helper()
	t.Logf("SEED=%d: %d keys, %v", h.seed, len(h.keys), h.seen)
	if key, ok := h.linearizable(t); !ok {
		t.Fatalf("SEED=%d: not linearizable; see %s", h.seed, h.draw(t, key))
	}
	for _, kind := range kinds {
		require.NotZero(t, h.seen[kind], "SEED=%d: the history has nothing of %q: %v", h.seed, kind, h.seen)
	}
}

// draw writes the history of a key to a file that outlives the test. It returns the name of
// the file.
func (h *history) draw(t *testing.T, key string) string {
	t.Helper()
	_, info := porcupine.CheckOperationsVerbose(model, h.operations(key), patience)
	path := filepath.Join(os.TempDir(), fmt.Sprintf("%s-%d.html", strings.ReplaceAll(t.Name(), "/", "-"), h.seed))
	require.NoError(t, porcupine.VisualizePath(model, info, path))
	return path
}

// model is the contract in the form that the checker wants, for the calls of one key.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{candidate{}} },
	Step: func(state, in, got any) []any {
		s, c, r := state.(candidate), in.(input), got.(reply)
		switch {
		case c.method == end.method:
			s.over = true
			return []any{s}
		case s.over:
			return []any{s} // only lost calls are left
		}
		var next []any
		for _, after := range s.step(c.call, r, c.at) {
			next = append(next, after)
		}
		return next
	},
	DescribeOperation: func(in, got any) string {
		if in.(input).method == end.method {
			return "end"
		}
		return fmt.Sprintf("%v: %v", in.(input).call, got.(reply))
	},
	DescribeState: func(state any) string { return state.(candidate).record.String() },
}).ToModel()
