package runtest_test

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// cached is a middleware as many services have one: it keeps answers by key, and knows no payload.
type cached struct {
	next http.Handler
	mu   sync.Mutex
	kept map[string][]byte
}

func (c *cached) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	c.mu.Lock()
	body, ok := c.kept[key]
	c.mu.Unlock()
	if ok {
		_, _ = w.Write(body)
		return
	}
	answer := httptest.NewRecorder()
	c.next.ServeHTTP(answer, r)
	if answer.Header().Get(problem.Header) == "" { // a guard's refusal is not an answer
		c.mu.Lock()
		c.kept[key] = bytes.Clone(answer.Body.Bytes())
		c.mu.Unlock()
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = answer.Body.WriteTo(w)
}

// A service that replaces its own cache by a guard, in the three steps of docs/how-to/migrating.md, runs
// no request twice, whichever steps it comes between.
func TestMigrationRunsNothingTwice(t *testing.T) {
	h := &guardtest.Counter{}
	old := &cached{kept: make(map[string][]byte)}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	shadow := guard.With(idempotency.WithShadow(true))
	phases := []http.Handler{
		func() http.Handler { old.next = h; return old }(),
		&cached{next: shadow.Handler(h), kept: old.kept},
		&cached{next: guard.Handler(h), kept: old.kept},
		guard.Handler(h),
	}
	type intent struct{ key, answer string }
	var known []intent
	for phase, handler := range phases {
		server := guardtest.ServeRecorder(t, handler)
		for _, in := range known {
			if phase == len(phases)-1 && in.key < "key-2" {
				continue // the old middleware's, whose lifetime is over by now
			}
			require.Equal(t, in.answer, server.Do(t, guardtest.Call{Key: in.key}).Body, "phase %d", phase)
		}
		key := "key-" + string(rune('0'+phase))
		known = append(known, intent{key, server.Do(t, guardtest.Call{Key: key}).Body})
		require.EqualValues(t, phase+1, h.Runs.Load())
	}

	// In step 2, a refusal of the guard is not kept by the old one.
	server := guardtest.ServeRecorder(t, phases[2])
	delete(old.kept, "key-2")
	guardtest.RequireProblem(t, server.Do(t, guardtest.Call{Key: "key-2", Body: "{}"}), http.StatusConflict, problem.KeyReused)
	require.Equal(t, known[2].answer, server.Do(t, guardtest.Call{Key: "key-2"}).Body)
}

// Stripe's rules, as docs/how-to/stripe-rules.md has them.
func TestRulesOfStripe(t *testing.T) {
	status := http.StatusBadRequest
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(status) }}
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(),
		idempotency.WithRebinding(true),
		idempotency.WithMismatchStatus(http.StatusBadRequest),
		idempotency.WithOutcome(func(status int, h http.Header) idempotency.Outcome {
			switch {
			case status == http.StatusBadRequest:
				return idempotency.NotExecuted
			case status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable:
				return idempotency.Final
			}
			return idempotency.DefaultOutcome(status, h)
		})).Handler(h))
	require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k", Body: `{"amount":"x"}`}).Status)
	status = http.StatusInternalServerError
	require.Equal(t, status, s.Do(t, guardtest.Call{Key: "k"}).Status, "corrected under the same key")
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	require.EqualValues(t, 2, h.Runs.Load())
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k", Body: "{}"}), http.StatusBadRequest, problem.KeyReused)
}
