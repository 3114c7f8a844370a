package response_test

import (
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/response"
)

func TestMain(m *testing.M) { os.Exit(guardtest.Main(m)) }

// A recording runs a handler for the first request and replays its answer to all others,
// which wait for it. It is what a guard does, without keys, claims and stores.
type recording struct {
	handler http.Handler
	limit   int64 // of the body
	drop    []string

	mu     sync.Mutex
	stored []byte
}

// record returns a recording of a handler whose answers are kept.
func record(h http.Handler) *recording { return &recording{handler: h, limit: 1 << 20} }

// notKept is the status of the answer to a request whose first answer was too large.
const notKept = http.StatusGone

func (s *recording) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const echo = "Idempotency-Key"
	w.Header()[echo] = r.Header[echo]
	if s.stored == nil {
		rec := new(response.Recorder)
		rec.Init(w, r.Method, response.Settings{Echo: echo, Limit: s.limit, Drop: answer.NamesOf(s.drop...)}, nil)
		defer rec.DropBuffer()
		s.handler.ServeHTTP(rec, r)
		rec.Close(true)
		a := rec.Answer()
		s.stored = a.Encode("", [32]byte{})
		rec.Respond()
		return
	}
	a, err := answer.Decode(s.stored, "", [32]byte{}, nil)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case a.Kind == answer.KindNotKept:
		w.WriteHeader(notKept)
	default:
		response.Send(w, &a, nil)
	}
}

// started returns a recorder of the answer to a POST.
func started(w http.ResponseWriter, s response.Settings, witness response.Witness) *response.Recorder {
	rec := new(response.Recorder)
	rec.Init(w, http.MethodPost, s, witness)
	return rec
}

// twice sends the same request twice. It checks that the handler ran once, and that the
// second answer is the replay of the first.
func twice(t *testing.T, serve func(http.Handler) *guardtest.Server, h http.HandlerFunc) (first, again guardtest.Reply) {
	t.Helper()
	runs := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) { h(w, r) }}
	s := serve(record(runs))
	first, again = s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
	require.EqualValues(t, 1, runs.Runs.Load())
	require.False(t, first.Replayed())
	guardtest.RequireReplay(t, first, again)
	return first, again
}
