package security

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/load"
)

// The guard reuses memory, but none that a handler can still see. The request's body ends with the
// handler. Anything else that it keeps stays as it was, and changes to it reach nobody else.
func TestNothingThatAHandlerKeepsIsReused(t *testing.T) {
	type kept struct {
		key    string
		w      http.ResponseWriter
		r      *http.Request
		header http.Header
		op     *idempotency.Operation
	}
	var mu sync.Mutex
	running := make(map[string]kept)
	var all []kept // by handlers that have returned
	h := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		half := make([]byte, r.ContentLength/2)
		if _, err := io.ReadFull(r.Body, half); err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Key", op.Key().Value)
		_, _ = w.Write(half)
		mu.Lock()
		defer mu.Unlock()
		running[op.Key().Value] = kept{op.Key().Value, w, r, w.Header(), op}
	}))
	body := func(key string) string { return string(bytes.Repeat([]byte(key+" "), 200)) }
	send := func(key, body string) *load.Answer {
		c := load.NewCaller(load.Work{In: []byte(body)})
		c.Send(h, key)
		return &c.Answer
	}
	const workers, keys = 4, 50
	guardtest.Together(workers, func(worker int) {
		for i := range keys {
			key := strconv.Itoa(1000*worker + 100 + i)
			for range 3 { // a run and two replays
				if a := send(key, body(key)); a.Status != http.StatusOK || a.Header().Get("X-Key") != key || a.Length != len(body(key))/2 {
					t.Errorf("key %s: %d %v", key, a.Status, a.Header())
				}
			}
			if a := send(key, body("other")); a.Status != http.StatusConflict {
				t.Errorf("key %s, other body: %d", key, a.Status)
			}
			mu.Lock()
			all = append(all, running[key])
			for _, k := range all { // they go on
				k.header.Set("X-Late", k.key)
				k.w.WriteHeader(http.StatusTeapot)
				if _, err := k.w.Write([]byte("late")); err == nil {
					t.Error("a write after the handler returned went through")
				}
			}
			mu.Unlock()
		}
	})
	require.Len(t, all, workers*keys)
	for _, k := range all {
		rest, err := io.ReadAll(k.r.Body)
		require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		require.Empty(t, rest, "it may be another request's by now")
		require.Equal(t, k.key, k.header.Get("X-Key"))
		require.Equal(t, k.key, k.op.Key().Value)
		require.Equal(t, k.key, k.r.Header.Get("Idempotency-Key"))
		require.Error(t, k.r.Context().Err())
		a := send(k.key, body(k.key))
		require.Equal(t, "true", a.Header().Get("Idempotent-Replayed"))
		require.Empty(t, a.Header().Get("X-Late"))
	}
}
