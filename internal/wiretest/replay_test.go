package wiretest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// What cannot be read, and what belongs to another request, answers nobody, and the
// handler does not run over it.
func TestAlteredAnswerIsNeverServed(t *testing.T) {
	t.Parallel()
	sealer := func(key byte) idempotency.Option {
		s, err := idempotency.NewSealer(append(make([]byte, 31), key))
		require.NoError(t, err)
		return idempotency.WithSealer(s)
	}
	plain := guardtest.StoredAnswer(t, guardtest.Call{Key: "k"})
	sealed := guardtest.StoredAnswer(t, guardtest.Call{Key: "k"}, sealer(1))
	with := func(b []byte) func([]byte) []byte { return func([]byte) []byte { return b } }
	asValue := func(b []byte) []byte {
		b[1] = byte(answer.KindValue)
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
		"of another key":          {nil, with(guardtest.StoredAnswer(t, guardtest.Call{Key: "other"})), problem.AnswerUnreadable},
		"of another tenant":       {nil, with(guardtest.StoredAnswer(t, guardtest.Call{Key: "k", Tenant: "bob"})), problem.AnswerUnreadable},
		"of another payload":      {nil, with(guardtest.StoredAnswer(t, guardtest.Call{Key: "k", Body: "other"})), problem.AnswerUnreadable},
		"the value of a Do":       {nil, asValue, problem.AnswerUnreadable},
		"newer":                   {nil, func(b []byte) []byte { b[0]++; return b }, problem.StoreUnavailable},
		"sealed, for one without": {nil, with(sealed), problem.StoreUnavailable},
		"sealed, nothing":         {sealer(1), with(nil), problem.AnswerUnreadable},
		"sealed, too short":       {sealer(1), func(b []byte) []byte { return b[:3] }, problem.AnswerUnreadable},
		"sealed, flipped":         {sealer(1), func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, problem.AnswerUnreadable},
		"sealed, of another key":  {sealer(1), with(guardtest.StoredAnswer(t, guardtest.Call{Key: "other"}, sealer(1))), problem.AnswerUnreadable},
		"sealed, key unknown":     {sealer(2), with(sealed), problem.StoreUnavailable},
		"sealed, newer":           {sealer(1), func(b []byte) []byte { b[0]++; return b }, problem.StoreUnavailable},
		"plain, for a sealer":     {sealer(1), with(plain), problem.StoreUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &guardtest.AlteringStore{Store: idempotency.NewMemoryStore()}
			seen := &guardtest.Events{}
			h := &guardtest.Counter{}
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, tt.opt, idempotency.WithObserver(seen.Observe)).Handler(h))
			s.Do(t, guardtest.Call{Key: "k"})
			store.Alter = tt.alter
			status := http.StatusInternalServerError
			if tt.code == problem.StoreUnavailable {
				status = http.StatusServiceUnavailable
			}
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), status, tt.code)
			require.EqualValues(t, 1, h.Runs.Load())
			require.Contains(t, seen.Kinds(), event.Corrupt)

			store.Alter = nil
			require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		})
	}
}

func TestReplayIsAuthorized(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		var asked []idempotency.RecordInfo
		authorize := func(r *http.Request, info idempotency.RecordInfo) error {
			asked = append(asked, info)
			if r.Header.Get("X-Role") != "admin" {
				return errors.New("the secret reason")
			}
			return nil
		}
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.WriteHeader(http.StatusCreated)
			if r.URL.Path == "/large" {
				_, _ = io.WriteString(w, "more than is kept")
			}
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithAuthorizeReplay(authorize), idempotency.WithLimits(idempotency.Limits{ResponseBody: 5})).Handler(h))
		for _, path := range []string{"/", "/large"} {
			asked = nil
			c := guardtest.Call{Key: path, Path: path}
			require.Equal(t, http.StatusCreated, s.Do(t, c).Status, "a run is not a replay")
			require.Empty(t, asked)
			got := s.Do(t, c)
			guardtest.RequireProblem(t, got, http.StatusForbidden, problem.ReplayDenied)
			require.NotContains(t, got.Body, "secret")
			require.Zero(t, got.Problem.OriginalStatus)
			c.Header = http.Header{"X-Role": {"admin"}}
			require.NotEqual(t, problem.ReplayDenied, s.Do(t, c).Problem.Code)
			require.Len(t, asked, 2)
			require.Equal(t, path, asked[0].Key.Value)
			require.Equal(t, "acme", asked[0].Key.Scope)
			require.Equal(t, http.StatusCreated, asked[0].Status)
		}
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// After the TTL the key is free, and not a moment earlier. The TTL starts when the answer
// is recorded, however long the run took.
func TestAnswerIsReplayedForItsTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(3*time.Hour, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithTTL(time.Hour))
		p.Do(t, guardtest.Call{Key: "k"})
		time.Sleep(time.Hour - time.Nanosecond)
		require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		time.Sleep(time.Nanosecond)
		require.False(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// Limits hold for what is recorded from now on. What is recorded already is still replayed.
func TestLowerLimitsDoNotTouchWhatIsRecorded(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		store := idempotency.NewMemoryStore()
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		}}
		first := serve(guardtest.NewGuard(t, store).Handler(h)).Do(t, guardtest.Call{Key: "k"})
		s := serve(guardtest.NewGuard(t, store, idempotency.WithLimits(idempotency.Limits{ResponseBody: 1}), idempotency.WithTTL(time.Second)).Handler(h))
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
		require.EqualValues(t, 1, h.Runs.Load())
	})
}
