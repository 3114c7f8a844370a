package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/problem"
)

// The refusals of a guard are errors of the client, with the problem document.
func TestRefusalsOfTheServer(t *testing.T) {
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(make([]byte, 1000))
	})
	for name, c := range map[string]struct {
		handler http.Handler
		opts    []idempotency.Option
		body    string
		want    []error
		code    problem.Code
	}{
		"reused": {large, nil, "other", []error{client.ErrKeyReused}, problem.KeyReused},
		"reused, other status": {
			large,
			[]idempotency.Option{idempotency.WithMismatchStatus(422)},
			"other",
			[]error{client.ErrKeyReused},
			problem.KeyReused,
		},
		"held": {
			broken,
			[]idempotency.Option{idempotency.WithRecovery(idempotency.Hold)},
			"body",
			[]error{client.ErrHeld, client.ErrOutcomeUnknown},
			problem.OutcomeUnknown,
		},
		"not kept": {
			large,
			[]idempotency.Option{idempotency.WithLimits(idempotency.Limits{ResponseBody: 100})},
			"body",
			[]error{client.ErrAnswerLost},
			problem.ResponseNotKept,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, newGuard(t, idempotency.NewMemoryStore(), c.opts...).Handler(c.handler))
			base := newBase(t)
			first := post(t.Context(), s.URL, "body")
			first.Header.Set(keyField, "k")
			answered(t, base, first)

			_, err := send(newTransport(t, base, quick), post(client.WithKey(t.Context(), "k"), s.URL, c.body))
			e := failure(t, err)
			for _, known := range []error{client.ErrKeyReused, client.ErrHeld, client.ErrOutcomeUnknown, client.ErrAnswerLost} {
				want := false
				for _, w := range c.want {
					want = want || errors.Is(w, known)
				}
				require.Equal(t, want, errors.Is(err, known), "%v", known)
			}
			require.Equal(t, c.code, e.Problem.Code)
			require.NotEmpty(t, e.Problem.Title)
			require.Equal(t, "k", e.Key)
			require.Equal(t, client.ReasonSettled, e.Reason)
			require.Len(t, e.Attempts, 1)
			if c.code == problem.ResponseNotKept {
				require.Equal(t, http.StatusCreated, e.Problem.OriginalStatus)
				require.Equal(t, "/charges/1", e.Problem.OriginalLocation)
			}
		})
	}
}

func TestReplayed(t *testing.T) {
	s := serve(t, newGuard(t, idempotency.NewMemoryStore()).Handler(http.NotFoundHandler()))
	transport := newTransport(t, newBase(t))
	for _, want := range []bool{false, true} {
		got := answered(t, transport, post(client.WithKey(t.Context(), "k"), s.URL, "{}"))
		require.Equal(t, 404, got.status)
		require.Equal(t, want, client.Replayed(got.resp))
	}
	require.False(t, client.Replayed(nil))
}

// After an attempt that may have been executed, only the one who executed it may speak.
// Answers of anybody else are asked again where that can help, and are never handed out.
func TestOnlyTheOneWhoRanItMaySpeakAfterDoubt(t *testing.T) {
	echo := func(status int) answer { return answer{status: status, header: map[string]string{keyField: "k"}} }
	problemOf := func(status int, title string) answer {
		return answer{status: status, header: map[string]string{"Content-Type": "application/problem+json"}, body: `{"title":"` + title + `"}`}
	}
	const (
		definite = 2 // it is the answer
		foreign  = 2 // nothing else would come
		unsure   = 4 // asked again, to the last attempt
	)
	for name, c := range map[string]struct {
		answer   answer
		accepted bool
		requests int
	}{
		"201":                          {answer{status: 201}, true, definite},
		"303 of the handler":           {answer{status: 303, header: map[string]string{"Location": "/1", keyField: "k"}}, true, definite},
		"303 to a login":               {answer{status: 303, header: map[string]string{"Location": "/login"}}, false, foreign},
		"302 of the handler":           {echo(302), true, definite},
		"400 of the handler":           {echo(400), true, definite},
		"402 of the handler":           {echo(402), true, definite},
		"403 of the handler":           {echo(403), true, definite},
		"404 of the handler":           {echo(404), true, definite},
		"403, replayed":                {replayed(answer{status: 403}), true, definite},
		"409, replayed":                {replayed(answer{status: 409}), true, definite},
		"500, replayed":                {replayed(answer{status: 500}), true, definite},
		"401 of a gateway":             {answer{status: 401}, false, foreign},
		"403 of a gateway":             {answer{status: 403}, false, foreign},
		"407 of a proxy":               {answer{status: 407}, false, foreign},
		"421 of a proxy":               {answer{status: 421}, false, foreign},
		"302 to a login":               {answer{status: 302, header: map[string]string{"Location": "/login"}}, false, foreign},
		"307":                          {answer{status: 307, header: map[string]string{"Location": "/1"}}, false, foreign},
		"308, with the key":            {echo(308), false, foreign},
		"scope-unresolved":             {refused(403, "scope-unresolved", keyField, "k"), false, foreign},
		"replay-denied":                {refused(403, "replay-denied", keyField, "k"), false, foreign},
		"key-invalid":                  {refused(400, "key-invalid"), false, foreign},
		"key-missing":                  {refused(400, "key-missing"), false, foreign},
		"body-too-large":               {refused(413, "body-too-large"), false, foreign},
		"fingerprint-failed":           {refused(400, "fingerprint-failed"), false, foreign},
		"400 of a proxy":               {answer{status: 400}, false, unsure},
		"404 of a proxy":               {answer{status: 404}, false, unsure},
		"405 of a proxy":               {answer{status: 405}, false, unsure},
		"413 of a proxy":               {answer{status: 413}, false, unsure},
		"431 of a proxy":               {answer{status: 431}, false, unsure},
		"409":                          {answer{status: 409}, false, unsure},
		"409, with the key":            {echo(409), false, unsure},
		"409 of the IETF draft":        {problemOf(409, "A request is outstanding for this Idempotency-Key"), false, unsure},
		"409 of another vendor":        {answer{status: 409, header: map[string]string{"Content-Type": "application/json"}, body: `{"error":{"code":"idempotency_key_in_use"}}`}, false, unsure},
		"409, some code":               {refused(409, "sold-out"), false, unsure},
		"422 of another vendor":        {answer{status: 422, header: map[string]string{"Content-Type": "application/json"}, body: `{"errorCode":"704"}`}, false, unsure},
		"422, with the key":            {echo(422), false, unsure},
		"423":                          {answer{status: 423}, false, unsure},
		"425":                          {answer{status: 425}, false, unsure},
		"the key of somebody else":     {answer{status: 404, header: map[string]string{keyField: "other"}}, false, unsure},
		"a word of another middleware": {answer{status: 404, header: map[string]string{"Idempotent-Replayed": "false"}}, false, unsure},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := client.WithKey(t.Context(), "k")
			if c.answer.status != 425 {
				got, err := send(newTransport(t, answering(c.answer)), post(ctx, place, "{}"))
				require.NoError(t, err, "as the only answer it is one")
				require.Equal(t, c.answer.status, got.status)
			}
			base := answering(answer{err: errReset}, c.answer)
			got, err := send(newTransport(t, base, quick), post(ctx, place, "{}"))
			require.Len(t, base.requests(), c.requests)
			if c.accepted {
				require.NoError(t, err)
				require.Equal(t, c.answer.status, got.status)
				require.Equal(t, c.answer.body, got.body)
				return
			}
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
			require.Equal(t, c.answer.status, failure(t, err).Attempts[1].Status)
			base.requireBodiesDone(t)

			// What is asked again ends in the answer when that is there.
			if c.requests == unsure {
				base = answering(answer{err: errReset}, c.answer, replayed(answer{status: 201}))
				got = answered(t, newTransport(t, base, quick), post(ctx, place, "{}"))
				require.Equal(t, 201, got.status)
			}
		})
	}
}

// One key in flight is waited for, until its answer is there, and one that was used for another request is
// refused. With an error writer of its own, the guard still says what its refusal is, and the client hears it.
func TestRefusalUnderAnErrorWriterIsHeard(t *testing.T) {
	sorry := func(w http.ResponseWriter, _ *http.Request, p problem.Document) { http.Error(w, "sorry", p.Status) }
	for name, writer := range map[string]idempotency.Option{"its own": nil, "another": idempotency.WithErrorWriter(sorry)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the client waits for the second that Retry-After says
			var runs atomic.Int64
			begun, leave := make(chan struct{}), make(chan struct{})
			guard := newGuard(t, idempotency.NewMemoryStore(), writer)
			s := serve(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				close(begun)
				<-leave
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "done")
			})))
			base := newBase(t)
			first, transport := make(chan error, 1), newTransport(t, base)
			go func() {
				_, err := send(transport, post(client.WithKey(t.Context(), "k"), s.URL, "{}"))
				first <- err
			}()
			<-begun
			var once atomic.Bool
			got, err := send(newTransport(t, base, quick, client.WithObserver(func(_ context.Context, e client.Event) {
				if e.Kind == client.EventRetry && !once.Swap(true) {
					close(leave)
				}
			})), post(client.WithKey(t.Context(), "k"), s.URL, "{}"))
			require.NoError(t, err)
			require.NoError(t, <-first)
			require.Equal(t, http.StatusCreated, got.status)
			require.Equal(t, "done", got.body)
			require.True(t, client.Replayed(got.resp))
			require.True(t, once.Load(), "the second was to find the first in flight")
			require.EqualValues(t, 1, runs.Load())

			err = failsWith(t, newTransport(t, base, quick), post(client.WithKey(t.Context(), "k"), s.URL, "other"), client.ErrKeyReused)
			require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
		})
	}
}

// A key that was used with other bytes may have been used by an earlier attempt, of a
// program that has made them anew.
func TestReusedKeyAfterAnEarlierAttemptIsUnknown(t *testing.T) {
	runs := 0
	s := serve(t, newGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		runs++
	})))
	plain := newBase(t)
	var loses atomic.Bool
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := plain.RoundTrip(r)
		if err == nil && loses.CompareAndSwap(true, false) {
			_ = resp.Body.Close()
			return nil, errReset
		}
		return resp, err
	})
	transport := newTransport(t, base, quick)
	requireUnknown := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, client.ErrKeyReused)
		require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	}

	loses.Store(true)
	r := post(t.Context(), s.URL, "at noon")
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("at 1 pm")), nil }
	_, err := send(transport, r)
	requireUnknown(err)

	e := client.Intent{Key: failure(t, err).Key, Since: time.Now()}
	err = failsWith(t, transport, post(e.Context(t.Context()), s.URL, "at 2 pm"), client.ErrKeyReused)
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown, "this process has sent nothing else")
	e.Resumed = true
	_, err = send(transport, post(e.Context(t.Context()), s.URL, "at 2 pm"))
	requireUnknown(err)
	require.Equal(t, 1, runs)
}

// A request that was surely not executed is not called unknown.
func TestGivingUpWhenNothingWasExecuted(t *testing.T) {
	base := answering(refused(503, "store-unavailable"), answer{status: 429, body: "slow down"})
	e := new(events)
	got := answered(t, newTransport(t, base, quick, client.WithObserver(e.observe)), post(t.Context(), place, "{}"))
	require.Equal(t, 429, got.status)
	require.Equal(t, "slow down", got.body)
	require.Len(t, base.requests(), 4)
	require.Len(t, e.of(client.EventGaveUp), 1)
	require.Equal(t, client.ReasonAttempts, e.of(client.EventGaveUp)[0].Reason)

	// Nobody listens on port 1.
	_, err := send(newTransport(t, newBase(t), quick), post(t.Context(), "http://127.0.0.1:1/", "{}"))
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Len(t, failure(t, err).Attempts, 4)
	require.Contains(t, err.Error(), "not executed")
}

func TestErrorHasTheEvidence(t *testing.T) {
	base := answering(answer{err: errReset}, answer{status: 502})
	var logged bytes.Buffer
	e := new(events)
	transport := newTransport(t, base, quick, client.WithObserver(e.observe), client.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	before := time.Now()
	err := failsWith(t, transport, post(client.WithKey(t.Context(), "secret-key"), place, "{}"), client.ErrOutcomeUnknown)
	f := failure(t, err)
	require.Equal(t, "secret-key", f.Key)
	require.Equal(t, client.ReasonAttempts, f.Reason)
	require.Len(t, f.Attempts, 4)
	for i, a := range f.Attempts {
		require.Equal(t, client.InDoubt, a.Verdict)
		require.False(t, a.Start.Before(before))
		if i == 0 {
			require.ErrorIs(t, a.Err, errReset)
		} else {
			require.Equal(t, 502, a.Status)
		}
	}
	require.Contains(t, err.Error(), "status 502")

	// Neither the log, nor the events, nor the text of the error show the key.
	require.Contains(t, logged.String(), "outcome of a request is unknown")
	for _, text := range []string{err.Error(), logged.String()} {
		require.NotContains(t, text, "secret-key")
		require.Contains(t, text, e.all[0].KeyHash)
	}
	for _, event := range e.all {
		require.Len(t, event.KeyHash, 8)
		require.Equal(t, "POST", event.Method)
		require.Equal(t, "server.test", event.Host)
	}
	last := e.of(client.EventGaveUp)
	require.Len(t, last, 1)
	require.Equal(t, err, last[0].Err)

	// With that key it goes on.
	r := post(client.WithKey(t.Context(), f.Key), place, "{}")
	answered(t, newTransport(t, answering(answer{status: 201})), r)
	require.Equal(t, 1, strings.Count(logged.String(), "\n"))
}

// With a panic of the observer, the answer or the key would be lost.
func TestPanicOfTheObserverIsContained(t *testing.T) {
	var logged bytes.Buffer
	transport := newTransport(t, answering(answer{status: 503}, answer{status: 201, chunks: true}), quick,
		client.WithObserver(func(context.Context, client.Event) { panic("expected by the test") }),
		client.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	require.Equal(t, 201, answered(t, transport, post(t.Context(), place, "{}")).status)
	require.Equal(t, 3, strings.Count(logged.String(), "observer panicked"))
	require.Contains(t, logged.String(), "expected by the test")
}

// A record that cannot be read does not tell whether anything has run. It may even be a
// foreign value under a key that was never used.
func TestUnreadableRecordIsNotAnExecutedRequest(t *testing.T) {
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(problem.Header, string(problem.AnswerUnreadable))
		w.WriteHeader(http.StatusInternalServerError)
	}))
	err := failsWith(t, newTransport(t, newBase(t), quick), post(client.WithKey(t.Context(), "k"), s.URL, "body"), client.ErrHeld)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.NotErrorIs(t, err, client.ErrAnswerLost)
}
