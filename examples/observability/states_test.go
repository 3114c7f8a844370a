package observability_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// This file has the states.

var hold = idempotency.WithRecovery(idempotency.Hold)

// late is the minute of what happens once, so early that it is seen at the end, and so late that it has not gone by.
const late = state - 5

// states are what may become of a service. Each function is called once a minute.
var states = []struct {
	name  string
	comes func(s *live, minute int)
}{
	{"all is well", func(*live, int) {}},
	{"a key is held", func(s *live, minute int) {
		if minute == 0 {
			s.post("held", "{}", answers(http.StatusBadGateway), hold)
		}
	}},
	{"a hold ends in half a day", func(s *live, minute int) {
		if minute == 0 {
			s.post("held", "{}", answers(http.StatusBadGateway), hold, idempotency.WithRetention(12*time.Hour))
		}
	}},
	{"somebody decides about a held key", func(s *live, minute int) {
		if minute != late {
			return
		}
		s.post("held", "{}", answers(http.StatusBadGateway), hold)
		key := idempotency.Key{Scope: store.Shared, Value: "held"}
		seen, err := s.guard.Lookup(s.t.Context(), key)
		require.NoError(s.t, err)
		require.NoError(s.t, s.guard.Resolve(s.t.Context(), key, seen.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
	}},
	{"the store refuses each call", func(s *live, _ int) { s.store.meet(failing(errAway)) }},
	{"the store is slow", func(s *live, _ int) {
		s.store.meet(func(context.Context, string) error { takes(1500 * time.Millisecond); return nil })
	}},
	{"the store hangs, and does not heed its context", func(s *live, _ int) {
		s.store.meet(func(context.Context, string) error { takes(10 * time.Minute); return errAway })
	}},
	{"the store takes no answers", func(s *live, _ int) { s.store.meet(failing(errAway, "complete")) }},
	{"the store has forgotten a record", func(s *live, minute int) {
		if minute == late {
			s.store.forget(s.t, func(e store.Entry) bool { return e.Record.State == store.Completed && !strings.HasPrefix(e.Key, ".") })
		}
	}},
	{"the store was emptied", func(s *live, minute int) {
		if minute == late {
			s.store.forget(s.t, func(store.Entry) bool { return true })
		}
	}},
	{"a record cannot be read", func(s *live, minute int) {
		if minute == late {
			s.store.meet(failing(store.ErrCorrupt, "claim"))
			s.post("damaged", "{}", answers(http.StatusCreated))
			s.store.meet(nil)
		}
	}},
	{"an answer cannot be sealed", func(s *live, minute int) {
		if minute == late {
			s.post("sealed", "{}", answers(http.StatusCreated), idempotency.WithSealer(noKey{}))
		}
	}},
	{"handlers run unprotected", func(s *live, minute int) {
		s.store.meet(failing(errAway))
		s.post(fmt.Sprint("open-", minute), "{}", answers(http.StatusCreated), idempotency.WithFailOpen(true))
	}},
	{"a guard stands inside another", func(s *live, _ int) {
		inner := s.guard.With(idempotency.WithTTL(time.Hour)).Handler(answers(http.StatusCreated))
		s.post("nested", "{}", inner.ServeHTTP)
	}},
	{"a run loses its lease", func(s *live, minute int) {
		if minute == late {
			s.store.meet(failing(errAway, "renew"))
			s.post("long", "{}", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			s.store.meet(nil)
		}
	}},
	{"a run hangs, and its client waits", func(s *live, _ int) {
		go s.post("hangs", "{}", func(http.ResponseWriter, *http.Request) { <-s.over }, idempotency.WithWait(5*time.Minute))
	}},
	{"clients retry at once", func(s *live, minute int) {
		key := fmt.Sprint("order-", minute)
		pays := func(w http.ResponseWriter, r *http.Request) {
			_, _ = idempotency.Step(r.Context(), "ledger", func(context.Context) (int, error) { takes(2 * time.Second); return 1, nil })
			w.WriteHeader(http.StatusCreated)
		}
		first := make(chan bool)
		go func() { s.post(key, "{}", pays); close(first) }()
		takes(time.Second)
		s.post(key, "{}", pays, idempotency.WithWait(10*time.Second))
		<-first
		s.post(key, "{}", pays)
	}},
	{"clients retry after 20 minutes", func(s *live, minute int) {
		s.post(fmt.Sprint("late-", minute), "{}", answers(http.StatusCreated))
		if minute >= 20 {
			s.post(fmt.Sprint("late-", minute-20), "{}", answers(http.StatusCreated))
		}
	}},
	{"runs fail, and are repeated", func(s *live, minute int) {
		for range 2 {
			s.post(fmt.Sprint("again-", minute), "{}", answers(http.StatusBadGateway))
		}
	}},
	{"clients use keys again for something else", func(s *live, minute int) {
		for _, body := range []string{"{}", "another"} {
			s.post(fmt.Sprint("reused-", minute), body, answers(http.StatusCreated))
		}
	}},
	{"clients of ours give up", func(s *live, _ int) {
		r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://payouts/", nil)
		require.NoError(s.t, err)
		resp, err := s.client.Do(r)
		if err == nil {
			require.NoError(s.t, resp.Body.Close())
		}
	}},
}

// A noKey seals nothing.
type noKey struct{ idempotency.Sealer }

func (noKey) Seal([]byte, []byte) ([]byte, error) { return nil, errors.New("no key today") }

// Each alert fires in a state, and none while all is well. Each query of each panel is above zero in a state. What else they say
// stands in a table.
func TestAlertsAndPanelsInEachState(t *testing.T) {
	promtool(t)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // it is told of each count that the store does not answer
	said := make([][]rune, len(states))
	for i, s := range states {
		t.Run(s.name, func(t *testing.T) { said[i] = column(t, run(t, s.comes)) })
	}
	if t.Failed() {
		return
	}
	var table strings.Builder
	table.WriteString("# What each alert and each query of the dashboard says in each state of a live service.\n# " +
		"An alert: ! has fired, . has not. A query: + something above zero, 0 zero, - nothing.\n\n")
	for i, s := range states {
		fmt.Fprintf(&table, "%c %s\n", 'a'+i, s.name)
	}
	row := func(n int, name string, wants rune) {
		var line []rune
		for _, column := range said {
			line = append(line, column[n])
		}
		assert.Contains(t, line, wants, name)
		fmt.Fprintf(&table, "%-66s %s\n", name, string(line))
	}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	fmt.Fprintf(&table, "\n%-66s %s\n", "", letters[:len(states)])
	names := alerts(t)
	for n, name := range names {
		row(n, name, firing)
	}
	table.WriteString("\n")
	for n, q := range queries(t) {
		row(len(names)+n, q.name, positive)
	}
	require.NotContains(t, said[0], firing, "while all is well")
	const file = "testdata/states.txt"
	if *write {
		require.NoError(t, os.WriteFile(file, []byte(table.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), table.String(), "go test -run InEachState -write writes it")
}
