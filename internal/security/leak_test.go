package security

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A client sends these, and the guard keeps them, marked so that the test can find them
// again. Key and scope contain sequences that break lines of a log, and terminals.
const (
	secretKey    = "key-of-the-client\n\x1b[31mlevel=ERROR msg=forged"
	secretScope  = "tenant-of-the-client"
	secretBody   = "payload-of-the-client"
	secretPath   = "path-of-the-client%0aforged"
	secretAnswer = "answer-of-the-handler"
	secretReason = "reason-of-the-program"
)

var errHostileBackend = errors.New("backend says\nlevel=ERROR msg=forged\x1b[31m")

// A leakage is everything that a guard tells others: its log in both usual forms, its
// events, and its refusals.
type leakage struct {
	text, json guardtest.LockedBuffer
	events     guardtest.Events
	problems   []guardtest.Reply
}

func (l *leakage) logger() *slog.Logger {
	return slog.New(slog.NewMultiHandler(slog.NewTextHandler(&l.text, nil), slog.NewJSONHandler(&l.json, nil)))
}

// Neither logs nor events show a client's key, path or payload, a fingerprint, or an
// answer, and no text from outside begins a line of its own. The log does not show the scope. Problem documents show no
// error of the backend or of the application's functions. The errors of these functions are
// logged as they are: what they say of the client is the application's choice.
func TestNothingOfClientsIsLogged(t *testing.T) {
	l := &leakage{}
	provoke := func(f func(t *testing.T, p *guardtest.Process, ask func() guardtest.Reply), opts ...idempotency.Option) {
		synctest.Test(t, func(t *testing.T) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				time.Sleep(time.Minute) // longer than the lease
				_, _ = io.WriteString(w, secretAnswer)
			}}
			opts = append([]idempotency.Option{
				idempotency.WithObserver(l.events.Observe), idempotency.WithLogger(l.logger()),
				idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return secretKey, nil }),
			}, opts...)
			mux := http.NewServeMux()
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, opts...)
			mux.Handle("/{anything...}", p.Guard.Handler(h))
			p.Server = guardtest.ServeRecorder(t, mux)
			f(t, p, func() guardtest.Reply {
				got := p.Do(t, guardtest.Call{Path: "/" + secretPath, Tenant: secretScope, Body: secretBody})
				if got.Problem.Code != "" {
					l.problems = append(l.problems, got)
				}
				return got
			})
			_ = p.Guard.Shutdown(guardtest.Shortly(t))
		})
	}

	refused := func(opt idempotency.Option, codes ...problem.Code) {
		provoke(func(t *testing.T, _ *guardtest.Process, ask func() guardtest.Reply) {
			ask()
			require.Contains(t, codes, ask().Problem.Code)
		}, opt)
	}
	refused(idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", errors.New(secretReason) }),
		problem.KeyInvalid)
	refused(idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) {
		return idempotency.Fingerprint{}, errors.New(secretReason)
	}), problem.FingerprintFailed)
	refused(idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error { return errors.New(secretReason) }),
		problem.ReplayDenied)
	refused(idempotency.WithLimits(idempotency.Limits{ResponseBody: 1}), problem.ResponseNotKept)
	refused(idempotency.WithSealer(guardtest.FailingSealer{}), problem.OutcomeUnknown)

	for _, op := range []string{"claim", "renew", "complete"} {
		for _, f := range []guardtest.Fault{guardtest.FailWith(errHostileBackend), guardtest.FailWith(idempotency.ErrCorrupt), guardtest.Hang} {
			provoke(func(_ *testing.T, p *guardtest.Process, ask func() guardtest.Reply) {
				p.Store.On(op, guardtest.Always(f))
				ask()
			})
		}
	}
	provoke(func(_ *testing.T, p *guardtest.Process, ask func() guardtest.Reply) {
		p.Store.On("claim", guardtest.Always(guardtest.FailWith(errHostileBackend)))
		ask()
	}, idempotency.WithFailOpen(true))
	provoke(func(t *testing.T, p *guardtest.Process, ask func() guardtest.Reply) {
		ask()
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Path: "/other", Tenant: secretScope}), http.StatusConflict, problem.KeyReused)
		require.True(t, ask().Replayed())
	})

	l.check(t)
}

func (l *leakage) check(t *testing.T) {
	t.Helper()
	kinds := map[event.Kind]bool{}
	for _, e := range l.events.All() {
		kinds[e.Kind] = true
		require.Contains(t, []string{"", http.MethodPost}, e.Method)
		require.Contains(t, []string{"", "/{anything...}"}, e.Route)
	}
	for _, kind := range []event.Kind{
		event.Run, event.Replay, event.Refused, event.FailOpen, event.StoreError,
		event.LeaseLost, event.RecordingDelayed, event.RecordingLost, event.Corrupt,
	} {
		require.True(t, kinds[kind], "%s was not provoked", kind)
	}

	fp, err := idempotency.RawFingerprint(mustRequest(secretPath), []byte(secretBody))
	require.NoError(t, err)
	logged, reported := l.text.String()+l.json.String(), fmt.Sprintf("%+v", l.events.All())
	require.Contains(t, logged, nameOfTheRecord(t), "the operator finds the record")
	require.Contains(t, reported, secretScope, "and the observer whose it is")
	require.NotContains(t, logged, secretScope)
	for what, secret := range map[string]string{
		"key": "key-of-the-client", "payload": secretBody, "path": "path-of-the-client", "answer": secretAnswer,
		"fingerprint": hex.EncodeToString(fp[1:9]), "fingerprint's base64": base64.StdEncoding.EncodeToString(fp[1:10]),
		"fingerprint's bytes": string(fp[1:9]), "fingerprint's numbers": strings.Trim(fmt.Sprint([]int{int(fp[1]), int(fp[2]), int(fp[3]), int(fp[4])}), "[]"),
	} {
		require.NotContains(t, logged, secret, what)
		require.NotContains(t, reported, secret, what)
	}

	for line := range strings.Lines(l.text.String()) {
		require.True(t, strings.HasPrefix(line, "time="), "a line that the logger did not begin: %q", line)
		require.Equal(t, -1, strings.IndexFunc(strings.TrimSuffix(line, "\n"), unicode.IsControl), "%q", line)
	}
	for line := range strings.Lines(l.json.String()) {
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		require.Regexp(t, "^idempotency: [a-z ,]+$", record["msg"], "a text of its own for each occasion")
	}
	require.Contains(t, l.text.String(), secretReason, "the operator learns why")

	require.Greater(t, len(l.problems), 8)
	for _, got := range l.problems {
		for _, secret := range []string{"backend", "forged", "down", "deadline", "timed out", "seal", secretReason, secretBody, secretAnswer, "key-of", "tenant-of"} {
			require.NotContains(t, got.Body, secret)
			require.NotContains(t, fmt.Sprint(got.Header), secret)
		}
	}
}

func mustRequest(path string) *http.Request {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://recorder.test/"+path, bytes.NewReader(nil))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// nameOfTheRecord returns the key that a store gets for the key of the client.
func nameOfTheRecord(t *testing.T) string {
	t.Helper()
	st := idempotency.NewMemoryStore()
	guard := guardtest.NewGuard(t, st)
	_, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: secretScope, Value: secretKey},
		func(context.Context) (int, error) { return 0, nil })
	require.NoError(t, err)
	entries := guardtest.List(t, st, store.Query{})
	require.Len(t, entries, 1)
	require.Len(t, entries[0].Key, 43)
	return entries[0].Key
}
