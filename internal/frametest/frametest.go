package frametest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// A Framework is what is tested.
type Framework struct {
	// Serve starts a server with the routes of app.go until the end of the test, and returns its URL. The
	// guard is nil for the bare server.
	Serve func(t testing.TB, app *App, guard *idempotency.Guard) (url string)
	// Scope finds the tenant that the framework's authentication has left for it.
	Scope idempotency.ScopeFunc
	// Route is what events call the route of POST /reply/:name.
	Route string
	// Differs has, for each case whose answers may differ in more than the parts that are allowed to
	// differ everywhere, these parts. The test fails if they do not differ.
	Differs map[string][]Allowed
	// RouterInside says that the guard stands around the router, and records its answers too.
	RouterInside bool
	// OwnProblems says that refusals have the framework's own format.
	OwnProblems bool
	// WholeStreams says that the chunks of a stream are sent when it has ended.
	WholeStreams bool
	// FailsLate says that the guard learns of a handler that fails behind the first byte of its answer.
	FailsLate bool

	// report takes each failure; without one, it is Errorf of the test.
	report func(format string, args ...any)
}

// Between says which answers differ.
type Between string

// A request is sent three times.
const (
	First Between = "bare and protected" // the bare server's answer, and that of the first run
	Retry Between = "first and retry"    // the answers to the first request and to the second one
)

// Allowed is a part in which two answers differ, and why that cannot be helped.
type Allowed struct {
	Between Between
	Part    string // status, body, cut, header NAME or trailer NAME
	Why     string
}

// A Result says how many requests were compared, and of how many all three answers were equal but
// for the parts that are allowed to differ everywhere.
type Result struct{ Requests, Equal int }

// Run tests a framework.
func Run(t *testing.T, f Framework) Result {
	t.Helper()
	if f.report == nil {
		f.report = t.Errorf
	}
	cases := Cases()
	guard, events := NewGuard(t, f.Scope)
	bare, protected := newApp(cases), newApp(cases)
	bareURL, url := f.Serve(t, bare, nil), f.Serve(t, protected, guard)

	used := map[string]bool{}
	result := Result{Requests: len(cases)}
	for _, c := range cases {
		key := "key-of-" + c.Name
		want := send(t, bareURL, c, "tenant", key)
		first := send(t, url, c, "tenant", key)
		retry := send(t, url, c, "tenant", key)
		for c.Fate == NotKept && retry.header.Get("Idempotency-Error") == "in-flight" {
			retry = send(t, url, c, "tenant", key) // the answer came before the end of its run
		}
		if c.Name == "stream-failed" && f.FailsLate {
			c.Fate = RunsAgain
		}
		if c.Fate == Untouched && f.RouterInside && c.Method == http.MethodPost {
			c.Fate = RunsAgain
			if idempotency.DefaultOutcome(first.status, first.header) == idempotency.Final {
				c.Fate = Replayed
			}
		}
		left := f.unexpected(c, First, compare(want, first), used)
		left = append(left, f.unexpected(c, Retry, compare(first, retry), used)...)
		for _, d := range left {
			f.report("%s: %s", c.Name, d)
		}
		f.requireFate(t, c, first, retry, protected)
		if len(f.Differs[c.Name]) == 0 && len(left) == 0 {
			result.Equal++
		}
	}
	for name, differences := range f.Differs {
		for _, d := range differences {
			if !used[name+string(d.Between)+d.Part] {
				f.report("%s: %s: there is no difference in %s", name, d.Between, d.Part)
			}
		}
	}
	f.requireRuns(t, bare, protected, events)
	f.refusals(t, url, protected)
	f.stream(t, url, protected)
	f.shadow(t, cases, bareURL)
	f.reload(t)
	t.Logf("%d requests, %d equal, %d with a difference that the framework makes", result.Requests, result.Equal, len(f.Differs))
	return result
}

// unexpected returns the differences that are not allowed.
func (f Framework) unexpected(c Case, between Between, all []difference, used map[string]bool) []string {
	var left []string
	for _, d := range all {
		if everywhere(c, between, d) {
			continue
		}
		if slices.ContainsFunc(f.Differs[c.Name], func(a Allowed) bool { return a.Between == between && a.Part == d.part }) {
			used[c.Name+string(between)+d.part] = true
			continue
		}
		left = append(left, fmt.Sprintf("%s: %s", between, d))
	}
	return left
}

// everywhere reports whether a difference is allowed in every framework. This is the whole list.
func everywhere(c Case, between Between, d difference) bool {
	if between == Retry && c.Fate == NotKept { // the guard's refusal, which is compared elsewhere
		return d.part != "header Vary"
	}
	switch d.part {
	case "header Date", "header X-Request-Id": // fresh on each answer
		return true
	case "header Idempotency-Key": // the guard echoes the key
		return between == First && c.Fate != Untouched && d.was == "[]" && d.is == "[key-of-"+c.Name+"]"
	case "header Content-Length": // the replay of a stream is no stream
		return between == Retry && c.Reply.Chunks != nil && d.was == "[]"
	}
	switch {
	case between == First || c.Fate != Replayed:
		return false
	case d.part == "header Idempotent-Replayed":
		return d.is == "[true]"
	default: // Set-Cookie gives rights to the client that receives it
		return d.part == "header Set-Cookie" && d.is == "[]"
	}
}

func (f Framework) requireFate(t *testing.T, c Case, first, retry answer, app *App) {
	t.Helper()
	runs := app.runsOf(nameOf(c))
	want := map[Fate]string{Replayed: "true"}[c.Fate]
	if retry.header.Get("Idempotent-Replayed") != want || first.header.Get("Idempotent-Replayed") != "" {
		f.report("%s: Idempotent-Replayed: %v, then %v", c.Name, first.header["Idempotent-Replayed"], retry.header["Idempotent-Replayed"])
	}
	was, is := first.header.Get("X-Request-Id"), retry.header.Get("X-Request-Id")
	if !retry.cut && (was == "") != (is == "") || was != "" && was == is {
		f.report("%s: the retry has the request ID %q of an outer handler", c.Name, is)
	}
	switch c.Fate {
	case NotKept:
		if retry.status != http.StatusConflict || retry.header.Get("Idempotency-Error") != "response-not-kept" {
			f.report("%s: the retry is answered %d %s", c.Name, retry.status, retry.header)
		}
	case Untouched:
		return
	}
	if nameOf(c) == "" {
		return // several cases share a handler
	}
	count := 1
	if c.Fate == RunsAgain {
		count = 2
	}
	if len(runs) != count {
		f.report("%s: %d runs instead of %d", c.Name, len(runs), count)
	}
	for i, r := range runs {
		if !r.protected || r.attempt != i+1 || r.scope != "tenant" {
			f.report("%s: run %d found the operation %+v in its context", c.Name, i+1, r)
		}
	}
}

// nameOf returns the name that the handler of a case gives to Begin, if no other case has it.
func nameOf(c Case) string {
	if strings.HasSuffix(c.Path, "/"+c.Name) {
		return c.Name
	}
	return ""
}

// requireRuns checks what all cases together have left.
func (f Framework) requireRuns(t *testing.T, bare, protected *App, events func(event.Kind) []event.Event) {
	t.Helper()
	for name, runs := range bare.runs {
		if slices.ContainsFunc(runs, func(r run) bool { return r.protected }) {
			f.report("%s: the bare server's handler has an operation", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bare.runs)) {
		if len(protected.runsOf(name)) == 0 {
			f.report("%s: the protected server has not run it", name)
		}
	}
	routes := map[string]bool{}
	for _, e := range events(event.Silent) {
		f.report("the handler of %s was silent: %v", e.Route, e.Err)
	}
	for _, e := range events(event.Run) {
		routes[e.Route] = true
	}
	if !routes[f.Route] {
		f.report("the route %s is not among those of the events: %q", f.Route, slices.Sorted(maps.Keys(routes)))
	}
}
