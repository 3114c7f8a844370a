package frametest

import (
	"net/http"
	"testing"

	"example.com/idempotency/problem"
)

// What a guard answers itself. The framework's server and one of net/http get the same requests, and
// give the same answers.

func (f Framework) refusals(t *testing.T, url string, app *App) {
	t.Helper()
	plain := newApp(Cases())
	net := HTTP()
	plainGuard, _ := NewGuard(t, net.Scope)
	plainURL := net.Serve(t, plain, plainGuard)
	for _, c := range []struct {
		name, path, key string
		before          Case // is sent first, with the same key
		body            string
		code            problem.Code
		status          int
	}{
		{name: "missing", path: "/required/status-201", code: problem.KeyMissing, status: 400},
		{name: "invalid", path: "/reply/status-201", key: "bad,key", code: problem.KeyInvalid, status: 400},
		{name: "mismatch", path: "/reply/status-202", key: "reused", body: `{"amount":999}`, before: Case{Path: "/reply/status-202"}, code: problem.KeyReused, status: 409},
		{name: "other path", path: "/reply/status-200", key: "reused", before: Case{Path: "/reply/status-202"}, code: problem.KeyReused, status: 409},
		{name: "held", path: "/held/status-500", key: "held", before: Case{Path: "/held/status-500"}, code: problem.OutcomeUnknown, status: 409},
		{name: "held after a panic", path: "/held/panic", key: "panicked", before: Case{Path: "/held/panic"}, code: problem.OutcomeUnknown, status: 409},
		{name: "request too large", path: "/reply/status-201", key: "large", body: string(make([]byte, mebibyte+1)), code: problem.BodyTooLarge, status: 413},
		{name: "not kept", path: "/reply/body-too-large", key: "not-kept", before: Case{Path: "/reply/body-too-large"}, code: problem.ResponseNotKept, status: 409},
	} {
		body := c.body
		if body == "" {
			body = `{"amount":100}`
		}
		call := Case{Name: c.name, Method: http.MethodPost, Path: c.path, Header: typed("application/json"), Body: body}
		if c.before.Path != "" {
			before := call
			before.Path, before.Body = c.before.Path, `{"amount":100}`
			send(t, url, before, "tenant", c.key)
			send(t, plainURL, before, "tenant", c.key)
		}
		f.compareRefusal(t, c.name, sendSettled(t, url, call, c.key), sendSettled(t, plainURL, call, c.key), c.status, c.code)
	}
	f.inFlight(t, url, app, plainURL, plain)
	f.scopes(t, url, app)
}

// sendSettled sends a request whose key has had a run. The client of an answer above the limit has
// all of it a moment before the run is settled.
func sendSettled(t testing.TB, url string, c Case, key string) (a answer) {
	t.Helper()
	for range 10_000 {
		a = send(t, url, c, "tenant", key)
		if a.header.Get("Idempotency-Error") != string(problem.InFlight) {
			break
		}
	}
	return a
}

func (f Framework) compareRefusal(t *testing.T, name string, got, want answer, status int, code problem.Code) {
	t.Helper()
	if got.status != status || got.header.Get("Idempotency-Error") != string(code) {
		f.report("refusal %s: status %d, %v, %s", name, got.status, got.header, got.body)
	}
	for _, d := range compare(want, got) {
		switch d.part {
		case "header Date", "header X-Request-Id":
		case "header Content-Type", "header Content-Length", "body", "header Link":
			if !f.OwnProblems {
				f.report("refusal %s: %s", name, d)
			}
		default:
			f.report("refusal %s: %s", name, d)
		}
	}
}

// inFlight sends a request while another one with its key runs.
func (f Framework) inFlight(t *testing.T, url string, app *App, plainURL string, plain *App) {
	t.Helper()
	call := Case{Name: slow, Method: http.MethodPost, Path: "/reply/" + slow, Header: typed("application/json"), Body: `{"amount":100}`}
	begin := func(url string, app *App) (done chan answer) {
		done = make(chan answer, 1)
		go func() {
			got, err := try(t.Context(), url, call, "tenant", "in-flight")
			if err != nil {
				f.report("in flight: %v", err)
			}
			done <- got
		}()
		<-app.entered
		return done
	}
	first, plainFirst := begin(url, app), begin(plainURL, plain)
	f.compareRefusal(t, "in flight", send(t, url, call, "tenant", "in-flight"), send(t, plainURL, call, "tenant", "in-flight"),
		http.StatusConflict, problem.InFlight)
	close(app.release)
	close(plain.release)
	<-plainFirst
	if got := <-first; got.status != http.StatusCreated {
		f.report("the request that ran while another came was answered %d %s", got.status, got.body)
	}
	if retry := send(t, url, call, "tenant", "in-flight"); retry.header.Get("Idempotent-Replayed") != "true" {
		f.report("in flight: the retry is not a replay: %d %v", retry.status, retry.header)
	}
	if n := len(app.runsOf(slow)); n != 1 {
		f.report("in flight: %d runs", n)
	}
}

// scopes sends the key of one tenant for another, and for nobody.
func (f Framework) scopes(t *testing.T, url string, app *App) {
	t.Helper()
	call := Case{Name: "scope", Method: http.MethodPost, Path: "/reply/scope", Header: typed("application/json"), Body: `{"amount":100}`}
	for _, tenant := range []string{"tenant", "other"} {
		if got := send(t, url, call, tenant, "shared"); got.status != http.StatusCreated || got.header.Get("Idempotent-Replayed") != "" {
			f.report("scope %s: %d %v %s", tenant, got.status, got.header, got.body)
		}
	}
	if runs := app.runsOf("scope"); len(runs) != 2 || runs[0].scope != "tenant" || runs[1].scope != "other" {
		f.report("scope: the runs were %+v", runs)
	}
	if got := send(t, url, call, "", "shared"); got.status != http.StatusForbidden || got.header.Get("Idempotency-Error") != string(problem.ScopeUnresolved) {
		f.report("no scope: %d %v %s", got.status, got.header, got.body)
	}
}
