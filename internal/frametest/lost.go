package frametest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// A Charge is a handler. The context is that of the framework, and answer answers with 201 and a text.
type Charge func(context any, answer func(text string)) error

// A lostContext is alice's request, during which her framework gives its context to bob's.
type lostContext struct {
	serve  func(timeout func(http.Handler) http.Handler, guard *idempotency.Guard, charge Charge) http.Handler
	key    string // hers, or none
	shadow bool
	half   string // what her handler writes while it has its context
	err    error  // what it returns in the end
}

// LostContext requires that a run is Unknown, and that no other request is harmed, if a timeout outside the guard
// has gone on without the handler, so that the framework has given its context to another request. The function
// returns a server with the timeout, the guard and the handler at POST /charges. An error of the handler is
// answered with 500.
func LostContext(t *testing.T, serve func(timeout func(http.Handler) http.Handler, guard *idempotency.Guard, charge Charge) http.Handler) {
	for name, alice := range map[string]lostContext{
		"silence":        {serve: serve, key: "alice"},
		"half an answer": {serve: serve, key: "alice", half: "half"},
		"an error":       {serve: serve, key: "alice", err: errors.New("declined")},
		"without a key":  {serve: serve},
		"shadow":         {serve: serve, key: "alice", shadow: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for !alice.happens(t) { // a pool promises nothing
				t.Log("the framework has taken another context")
			}
		})
	}
}

func (l *lostContext) happens(t *testing.T) (lost bool) {
	ctx, timeOut := context.WithCancel(t.Context())
	over, ended := make(chan struct{}), make(chan struct{}, 4)
	timeout := func(h http.Handler) http.Handler {
		return http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			ended <- struct{}{}
		}), time.Hour, "")
	}
	runs, first := 0, any(nil)
	guard, events := NewGuard(t, idempotency.SharedScope, idempotency.WithShadow(l.shadow))
	h := l.serve(timeout, guard, func(context any, answer func(string)) error {
		switch runs++; runs {
		case 1:
			if first = context; l.half != "" {
				answer(l.half)
			}
			timeOut() // http.TimeoutHandler returns as it does when the time is over
			<-over
			return l.err
		case 2:
			lost = context == first
			close(over)
			<-ended
			answer("for bob")
		default:
			answer("again")
		}
		return nil
	})
	post := func(ctx context.Context, key string) Answer {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/charges", strings.NewReader("x"))
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return Answer{w.Code, w.Body.String(), w.Header().Get("Idempotent-Replayed") == "true"}
	}
	post(ctx, l.key)
	bob := post(t.Context(), "bob")
	if !lost {
		return false
	}
	require.Contains(t, bob.Body, "for bob") // behind alice's half, where her guard has a writer of the pool
	if l.shadow {
		return true
	}
	require.Equal(t, Answer{Status: 201, Body: "for bob", Replayed: true}, post(t.Context(), "bob"))
	require.Equal(t, Answer{Status: 201, Body: "again"}, post(t.Context(), l.key))
	if l.key != "" {
		silent := events(event.Silent)
		require.Len(t, silent, 1)
		require.ErrorContains(t, silent[0].Err, "timeout")
	}
	return true
}
