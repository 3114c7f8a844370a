package idempotency_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// An alteringStore hands out other answers than those recorded.
type alteringStore struct {
	idempotency.Store
	alter func(answer []byte) []byte
}

func (s *alteringStore) Claim(ctx context.Context, key string, c idempotency.Claim) (idempotency.Record, error) {
	rec, err := s.Store.Claim(ctx, key, c)
	if rec.State == idempotency.StateCompleted && s.alter != nil {
		rec.Answer = s.alter(slices.Clone(rec.Answer))
	}
	return rec, err
}

// storedAnswer returns what a guard with the options records for a request.
func storedAnswer(t *testing.T, c call, opts ...idempotency.Option) (stored []byte) {
	t.Helper()
	store := &alteringStore{Store: idempotency.NewMemoryStore(), alter: func(b []byte) []byte { stored = b; return b }}
	s := serveRecorder(t, newGuard(t, store, opts...).Handler(&counter{}))
	s.do(t, c)
	require.True(t, s.do(t, c).replayed())
	return stored
}

// What cannot be read, and what belongs to another request, answers nobody, and the
// handler does not run over it.
func TestAlteredAnswerIsNeverServed(t *testing.T) {
	t.Parallel()
	sealer := func(key byte) idempotency.Option {
		s, err := idempotency.NewSealer(append(make([]byte, 31), key))
		require.NoError(t, err)
		return idempotency.WithSealer(s)
	}
	plain := storedAnswer(t, call{key: "k"})
	sealed := storedAnswer(t, call{key: "k"}, sealer(1))
	with := func(b []byte) func([]byte) []byte { return func([]byte) []byte { return b } }
	asValue := func(b []byte) []byte {
		b[1] = byte(response.KindValue)
		b = b[:len(b)-crc32.Size]
		return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	}
	tests := map[string]struct {
		opt   idempotency.Option
		alter func([]byte) []byte
		code  problem.Code
	}{
		"nothing":                 {nil, with(nil), problem.AnswerUnreadable},
		"cut":                     {nil, func(b []byte) []byte { return b[:len(b)-1] }, problem.AnswerUnreadable},
		"longer":                  {nil, func(b []byte) []byte { return append(b, 0) }, problem.AnswerUnreadable},
		"flipped":                 {nil, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, problem.AnswerUnreadable},
		"of another key":          {nil, with(storedAnswer(t, call{key: "other"})), problem.AnswerUnreadable},
		"of another tenant":       {nil, with(storedAnswer(t, call{key: "k", tenant: "bob"})), problem.AnswerUnreadable},
		"of another payload":      {nil, with(storedAnswer(t, call{key: "k", body: "other"})), problem.AnswerUnreadable},
		"the value of a Do":       {nil, asValue, problem.AnswerUnreadable},
		"newer":                   {nil, func(b []byte) []byte { b[0]++; return b }, problem.StoreUnavailable},
		"sealed, for one without": {nil, with(sealed), problem.StoreUnavailable},
		"sealed, nothing":         {sealer(1), with(nil), problem.AnswerUnreadable},
		"sealed, too short":       {sealer(1), func(b []byte) []byte { return b[:3] }, problem.AnswerUnreadable},
		"sealed, flipped":         {sealer(1), func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, problem.AnswerUnreadable},
		"sealed, of another key":  {sealer(1), with(storedAnswer(t, call{key: "other"}, sealer(1))), problem.AnswerUnreadable},
		"sealed, key unknown":     {sealer(2), with(sealed), problem.AnswerUnreadable},
		"sealed, newer":           {sealer(1), func(b []byte) []byte { b[0]++; return b }, problem.StoreUnavailable},
		"plain, for a sealer":     {sealer(1), with(plain), problem.AnswerUnreadable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &alteringStore{Store: idempotency.NewMemoryStore()}
			seen := &events{}
			h := &counter{}
			s := serveRecorder(t, newGuard(t, store, tt.opt, idempotency.WithObserver(seen.observe)).Handler(h))
			s.do(t, call{key: "k"})
			store.alter = tt.alter
			status := http.StatusInternalServerError
			if tt.code == problem.StoreUnavailable {
				status = http.StatusServiceUnavailable
			}
			requireProblem(t, s.do(t, call{key: "k"}), status, tt.code)
			require.EqualValues(t, 1, h.runs.Load())
			require.Contains(t, seen.kinds(), idempotency.EventCorrupt)

			store.alter = nil
			require.True(t, s.do(t, call{key: "k"}).replayed())
		})
	}
}

func TestReplayIsAuthorized(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		var asked []idempotency.RecordInfo
		authorize := func(r *http.Request, info idempotency.RecordInfo) error {
			asked = append(asked, info)
			if r.Header.Get("X-Role") != "admin" {
				return errors.New("the secret reason")
			}
			return nil
		}
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.WriteHeader(http.StatusCreated)
			if r.URL.Path == "/large" {
				_, _ = io.WriteString(w, "more than is kept")
			}
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithAuthorizeReplay(authorize), idempotency.WithMaxResponseBody(5)).Handler(h))
		for _, path := range []string{"/", "/large"} {
			asked = nil
			c := call{key: path, path: path}
			require.Equal(t, http.StatusCreated, s.do(t, c).status, "a run is not a replay")
			require.Empty(t, asked)
			got := s.do(t, c)
			requireProblem(t, got, http.StatusForbidden, problem.ReplayDenied)
			require.NotContains(t, got.body, "secret")
			require.Zero(t, got.problem.OriginalStatus)
			c.header = http.Header{"X-Role": {"admin"}}
			require.NotEqual(t, problem.ReplayDenied, s.do(t, c).problem.Code)
			require.Len(t, asked, 2)
			require.Equal(t, path, asked[0].Key.Value)
			require.Equal(t, "acme", asked[0].Key.Scope)
			require.Equal(t, http.StatusCreated, asked[0].Status)
		}
		require.EqualValues(t, 2, h.runs.Load())
	})
}

// After the TTL the key is free, and not a moment earlier. The TTL starts when the answer
// is recorded, however long the run took.
func TestAnswerIsReplayedForItsTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(3*time.Hour, "done")
		p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithTTL(time.Hour))
		p.do(t, call{key: "k"})
		time.Sleep(time.Hour - time.Nanosecond)
		require.True(t, p.do(t, call{key: "k"}).replayed())
		time.Sleep(time.Nanosecond)
		require.False(t, p.do(t, call{key: "k"}).replayed())
		require.EqualValues(t, 2, h.runs.Load())
	})
}
