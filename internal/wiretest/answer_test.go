package wiretest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"strconv"
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

// Each refusal names its code in a field of its own, whatever the application makes of the
// body; no other answer has the field.
func TestRefusalNamesItsCodeUnderAnErrorWriter(t *testing.T) {
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRequired(true),
		idempotency.WithErrorWriter(func(w http.ResponseWriter, _ *http.Request, _ problem.Document) {
			http.Error(w, "no", http.StatusTeapot)
		}))
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(guardtest.Answering(0, "done")))
	mux.Handle("/keys", guard.LookupHandler())
	s := guardtest.ServeRecorder(t, mux)
	lookup := guardtest.Call{Method: http.MethodGet, Path: "/keys", Key: "k", NoBody: true}
	for _, c := range []struct {
		call guardtest.Call
		want problem.Code
	}{
		{guardtest.Call{}, problem.KeyMissing},
		{lookup, problem.KeyUnknown},
		{guardtest.Call{Key: "k"}, ""},
		{guardtest.Call{Key: "k"}, ""},
		{guardtest.Call{Key: "k", Body: "other"}, problem.KeyReused},
		{guardtest.Call{Key: "a,b"}, problem.KeyInvalid},
		{lookup, ""},
	} {
		got := s.Do(t, c.call)
		require.Equal(t, string(c.want), got.Header.Get(problem.Header))
		require.Equal(t, c.want != "", got.Status == http.StatusTeapot)
	}
}

// A request that a function of the route refuses tells the operator why, and the client only
// what it can do about it.
func TestCauseOfARefusalIsReported(t *testing.T) {
	away := errors.New("jwks.internal: connection refused")
	tests := map[string]struct {
		cause  error
		status int
		code   problem.Code // 0 stands for the code of the function
	}{
		"no reason":         {away, 0, ""},
		"try later":         {fmt.Errorf("%w: %w", idempotency.ErrTryLater, away), http.StatusServiceUnavailable, problem.TryLater},
		"not authenticated": {fmt.Errorf("%w: %w", idempotency.ErrUnauthenticated, away), http.StatusUnauthorized, problem.Unauthenticated},
	}
	functions := map[string]struct {
		code    problem.Code
		options func(err error) (idempotency.ScopeFunc, idempotency.Option)
	}{
		"scope": {problem.ScopeUnresolved, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return func(*http.Request) (string, error) { return "", err }, nil
		}},
		"key": {problem.KeyInvalid, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return guardtest.TenantScope, idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", err })
		}},
		"fingerprint": {problem.FingerprintFailed, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return guardtest.TenantScope, idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) {
				return idempotency.Fingerprint{}, err
			})
		}},
		"replay": {problem.ReplayDenied, func(err error) (idempotency.ScopeFunc, idempotency.Option) {
			return guardtest.TenantScope, idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error { return err })
		}},
	}
	for what, tt := range tests {
		for name, f := range functions {
			t.Run(name+"/"+what, func(t *testing.T) {
				code, status := tt.code, tt.status
				if code == "" || code == problem.Unauthenticated && name != "scope" {
					code, status = f.code, problem.New(f.code).Status
				}
				var events guardtest.Events
				var log guardtest.LockedBuffer
				scope, opt := f.options(tt.cause)
				g, err := idempotency.New(idempotency.NewMemoryStore(), scope, opt, idempotency.WithObserver(events.Observe),
					idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				s := guardtest.ServeRecorder(t, g.Handler(new(guardtest.Counter)))
				if name == "replay" {
					s.Do(t, guardtest.Call{Key: "k"})
				}
				got := s.Do(t, guardtest.Call{Key: "k"})
				guardtest.RequireProblem(t, got, status, code)
				require.NotContains(t, got.Body, "jwks")
				require.Len(t, events.Errors(), 1)
				require.ErrorIs(t, events.Errors()[0], away)
				require.Contains(t, log.String(), "connection refused")
				require.Contains(t, log.String(), "code="+string(code))
				require.Equal(t, code == problem.Unauthenticated, !strings.Contains(log.String(), "level=WARN"))
			})
		}
	}
}

// The status handler asks the same functions.
func TestCauseOfADeniedLookupIsReported(t *testing.T) {
	var events guardtest.Events
	away := errors.New("policy service is away")
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe),
		idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error {
			return fmt.Errorf("%w: %w", idempotency.ErrTryLater, away)
		}))
	guardtest.ServeRecorder(t, g.Handler(new(guardtest.Counter))).Do(t, guardtest.Call{Key: "k"})
	got := guardtest.ServeRecorder(t, g.LookupHandler()).Do(t, guardtest.Call{Method: http.MethodGet, Key: "k", NoBody: true})
	guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.TryLater)
	require.Len(t, events.Errors(), 1)
	require.ErrorIs(t, events.Errors()[0], away)
}

// A refusal that is the client's doing alone is not in the log.
func TestRefusalWithoutACauseIsNotLogged(t *testing.T) {
	var log guardtest.LockedBuffer
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).Handler(new(guardtest.Counter)))
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "bad,key"}), http.StatusBadRequest, problem.KeyInvalid)
	require.Empty(t, log.String())
}

// A call of an RPC framework may fail behind a 200, and equal messages may differ in their bytes.
func TestCallsOfRPCAreRefused(t *testing.T) {
	own := idempotency.WithFingerprint(func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, body), nil
	})
	for name, header := range map[string]http.Header{
		"gRPC":              {"Content-Type": {"application/grpc"}},
		"gRPC, with a form": {"Content-Type": {"application/grpc+proto"}},
		"gRPC-Web":          {"Content-Type": {"application/grpc-web-text"}},
		"Connect, stream":   {"Content-Type": {"application/connect+json"}},
		"Connect":           {"Content-Type": {"application/proto"}, "Connect-Protocol-Version": {"1"}},

		// As frameworks read the field.
		"gRPC, in another case":    {"Content-Type": {"Application/GRPC"}},
		"gRPC, with a parameter":   {"Content-Type": {"application/grpc ; charset=utf-8"}},
		"gRPC, before another":     {"Content-Type": {"application/grpc", "application/json"}},
		"gRPC, behind another":     {"Content-Type": {"application/json", "application/grpc"}},
		"Connect, in another case": {"Content-Type": {"APPLICATION/Connect+Proto"}},

		"MCP":              {"Mcp-Protocol-Version": {"2025-06-18"}},
		"MCP in a session": {"Mcp-Session-Id": {"s"}},
	} {
		t.Run(name, func(t *testing.T) {
			var events guardtest.Events
			for opt, refused := range map[*idempotency.Option]bool{nil: true, &own: false} {
				opts := []idempotency.Option{idempotency.WithObserver(events.Observe)}
				if opt != nil {
					opts = append(opts, *opt)
				}
				counter := new(guardtest.Counter)
				s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(counter))
				got := s.Do(t, guardtest.Call{Key: "k", Header: header})
				if refused {
					guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.FingerprintFailed)
				}
				require.Equal(t, refused, counter.Runs.Load() == 0)
				s.Do(t, guardtest.Call{Header: header})
				require.Equal(t, refused, counter.Runs.Load() == 1, "a call without a key passes")
			}
			require.Len(t, events.Errors(), 1)
			module := "connectidempotency"
			if strings.HasPrefix(name, "MCP") {
				module = "mcpidempotency"
			}
			require.ErrorContains(t, events.Errors()[0], module)
		})
	}
}

// Clients of the first version of the Model Context Protocol, and curl, send none of its fields. Other calls of
// JSON-RPC, and texts that only look like one, pass.
func TestCallOfATool(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge"}}`
	for body, refused := range map[string]bool{
		call: true,
		`[{"method":"ping","jsonrpc":"2.0"},` + call + `]`: true,
		strings.ReplaceAll(call, "/", `\/`):                true,
		strings.ReplaceAll(call, "tools/call", "charge"):   false,
		`{"note":` + strconv.Quote(call) + `}`:             false,
		`{"calls":[` + call + `]}`:                         false,
		call[1:]:                                           false,
	} {
		counter := new(guardtest.Counter)
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(counter))
		got := s.Do(t, guardtest.Call{Key: "k", Body: body})
		require.Equal(t, refused, counter.Runs.Load() == 0, body)
		if refused {
			guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.FingerprintFailed)
		}
	}
}

// What cannot be read, and what belongs to another request, answers nobody, and the
// handler does not run over it.
func TestAlteredAnswerIsNeverServed(t *testing.T) {
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
	type row struct {
		opt   idempotency.Option
		alter func([]byte) []byte
		code  problem.Code
	}
	guardtest.Each(t, map[string]row{
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
	}, func(t *testing.T, tt row) {
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

func TestReplayIsAuthorized(t *testing.T) {
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
