package frametest

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A program reloads its configuration: a guard with other settings is made, over the same Redis, and
// for a while both serve. A key that one of them has claimed comes back to the other. Nothing runs
// twice, and what is refused is what docs/how-to/rotating.md says.

// A change is one of the configuration.
type change struct {
	name     string
	was, now []idempotency.Option
	steps    []step
	inFlight problem.Code // what the latter says of a key that the former runs: in-flight if it is empty
}

// A step is a request to one of the two servers. Its key is that of all steps with its path, unless
// it has its own.
type step struct {
	to   side
	path string
	key  string
	body string // {"amount":100} if it is empty
	want outcome
	runs int // of the path so far
}

type side int

const (
	former side = iota
	latter
)

// An outcome is what a step gets.
type outcome struct {
	status   int
	code     problem.Code
	replayed bool
	ttl      time.Duration // what is left of it, at most, if that is checked
}

func ran(status int) outcome                       { return outcome{status: status} }
func replayed(status int) outcome                  { return outcome{status: status, replayed: true} }
func refused(status int, c problem.Code) outcome   { return outcome{status: status, code: c} }
func (o outcome) within(ttl time.Duration) outcome { o.ttl = ttl; return o }

// spaced is the same JSON as the body of all other steps, in other bytes.
const spaced = `{ "amount": 100 }`

func total(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(1, body), nil
}

func itemized(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
	return idempotency.NewFingerprint(2, body), nil
}

func changes() []change {
	mismatch := refused(http.StatusConflict, problem.KeyReused)
	unreadable := refused(http.StatusServiceUnavailable, problem.StoreUnavailable)
	expiry := idempotency.WithExpiryHeader("Idempotency-TTL")
	return []change{
		{
			name: "nothing",
			steps: []step{
				{to: former, path: "/reply/status-201", want: ran(201), runs: 1},
				{to: latter, path: "/reply/status-201", want: replayed(201), runs: 1},
				{to: latter, path: "/reply/status-202", want: ran(202), runs: 1},
				{to: former, path: "/reply/status-202", want: replayed(202), runs: 1},
				{to: former, path: "/reply/status-202", body: spaced, want: mismatch, runs: 1},
			},
		},
		{ // an answer keeps the TTL with which it was recorded
			name: "times",
			was:  []idempotency.Option{expiry, idempotency.WithTTL(time.Hour), idempotency.WithLease(20 * time.Second)},
			now: []idempotency.Option{
				expiry, idempotency.WithTTL(3 * time.Hour), idempotency.WithLease(time.Minute), idempotency.WithRetention(time.Hour),
			},
			steps: []step{
				{to: former, path: "/reply/status-201", want: ran(201).within(time.Hour), runs: 1},
				{to: latter, path: "/reply/status-201", want: replayed(201).within(time.Hour), runs: 1},
				{to: latter, path: "/reply/status-202", want: ran(202).within(3 * time.Hour), runs: 1},
				{to: former, path: "/reply/status-202", want: replayed(202).within(3 * time.Hour), runs: 1},
			},
		},
		{ // the process that runs a request says what becomes of a failure
			name: "recovery", now: []idempotency.Option{idempotency.WithRecovery(idempotency.Hold)},
			steps: []step{
				{to: former, path: "/reply/status-500", want: ran(500), runs: 1},
				{to: latter, path: "/reply/status-500", want: ran(500), runs: 2}, // Rerun of the former: it may
				{to: former, path: "/reply/status-500", want: refused(409, problem.OutcomeUnknown), runs: 2},
				{to: latter, path: "/reply/status-500", want: refused(409, problem.OutcomeUnknown), runs: 2},
				{to: latter, path: "/held/status-501", want: ran(501), runs: 1},
				{to: former, path: "/held/status-501", want: refused(409, problem.OutcomeUnknown), runs: 1},
			},
		},
		{ // an answer that is recorded is replayed as it is
			name: "limits", now: []idempotency.Option{idempotency.WithLimits(idempotency.Limits{ResponseBody: 1 << 10, RequestBody: 20})},
			steps: []step{
				{to: former, path: "/reply/body-large", want: ran(201), runs: 1},
				{to: latter, path: "/reply/body-large", want: replayed(201), runs: 1},
				{to: latter, path: "/reply/body-large", key: "-of-the-latter", want: ran(201), runs: 2},
				{to: former, path: "/reply/body-large", key: "-of-the-latter", want: refused(409, problem.ResponseNotKept), runs: 2},
				{to: former, path: "/reply/status-201", body: `{"amount":100,"note":"long"}`, want: ran(201), runs: 1},
				{to: latter, path: "/reply/status-201", body: `{"amount":100,"note":"long"}`, want: refused(413, problem.BodyTooLarge), runs: 1},
				{to: former, path: "/reply/status-201", body: `{"amount":100,"note":"long"}`, want: replayed(201), runs: 1},
				{to: latter, path: "/reply/status-202", body: `{"amount":100,"note":"long"}`, want: refused(413, problem.BodyTooLarge), runs: 0},
				{to: former, path: "/reply/status-202", body: `{"amount":100,"note":"long"}`, want: ran(202), runs: 1},
			},
		},
		{ // the process that runs a request judges it
			name: "outcome", now: []idempotency.Option{idempotency.WithOutcome(func(status int, h http.Header) idempotency.Outcome {
				if status == http.StatusPaymentRequired {
					return idempotency.NotExecuted
				}
				return idempotency.DefaultOutcome(status, h)
			})},
			steps: []step{
				{to: former, path: "/reply/status-402", want: ran(402), runs: 1},
				{to: latter, path: "/reply/status-402", want: replayed(402), runs: 1},
				{to: latter, path: "/reply/status-402", key: "-of-the-latter", want: ran(402), runs: 2},
				{to: former, path: "/reply/status-402", key: "-of-the-latter", want: ran(402), runs: 3},
				{to: latter, path: "/reply/status-402", key: "-of-the-latter", want: replayed(402), runs: 3},
			},
		},
		{ // a retry is compared by the function of its record
			name: "fingerprint to JSON", now: []idempotency.Option{idempotency.WithFingerprint(idempotency.JSONFingerprint)},
			steps: []step{
				{to: former, path: "/reply/status-201", want: ran(201), runs: 1},
				{to: latter, path: "/reply/status-201", want: replayed(201), runs: 1},
				{to: latter, path: "/reply/status-201", body: spaced, want: mismatch, runs: 1},
				{to: latter, path: "/reply/status-202", want: ran(202), runs: 1},
				{to: former, path: "/reply/status-202", body: spaced, want: replayed(202), runs: 1},
				{to: former, path: "/reply/status-202", body: `{"amount":999}`, want: mismatch, runs: 1},
			},
		},
		{
			name: "fingerprint in phases",
			was:  []idempotency.Option{idempotency.WithFingerprint(total, itemized)},
			now:  []idempotency.Option{idempotency.WithFingerprint(itemized, total)},
			steps: []step{
				{to: former, path: "/reply/status-201", want: ran(201), runs: 1},
				{to: latter, path: "/reply/status-201", want: replayed(201), runs: 1},
				{to: latter, path: "/reply/status-202", want: ran(202), runs: 1},
				{to: former, path: "/reply/status-202", want: replayed(202), runs: 1},
				{to: former, path: "/reply/status-202", body: spaced, want: mismatch, runs: 1},
			},
		},
		{
			name: "fingerprint without phases", inFlight: problem.StoreUnavailable,
			was: []idempotency.Option{idempotency.WithFingerprint(total)},
			now: []idempotency.Option{idempotency.WithFingerprint(itemized)},
			steps: []step{
				{to: former, path: "/reply/status-201", want: ran(201), runs: 1},
				{to: latter, path: "/reply/status-201", want: unreadable, runs: 1},
				{to: former, path: "/reply/status-201", want: replayed(201), runs: 1},
				{to: latter, path: "/reply/status-202", want: ran(202), runs: 1},
				{to: former, path: "/reply/status-202", want: unreadable, runs: 1},
				{to: former, path: "/reply/status-500", want: ran(500), runs: 1}, // released, and still bound
				{to: latter, path: "/reply/status-500", want: unreadable, runs: 1},
			},
		},
	}
}

// reload tries each change, with a Redis of its own if there is one on this machine.
func (f Framework) reload(t *testing.T) {
	t.Helper()
	t.Run("reload", func(t *testing.T) {
		addr := redistest.Start(t).Addr
		for n, c := range changes() {
			app := newApp(Cases())
			var urls [2]string
			for side, opts := range [][]idempotency.Option{c.was, c.now} {
				rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
				store := idempotency.NewRedisStore(rdb, idempotency.WithPrefix(fmt.Sprint(n, ":")))
				guard, err := idempotency.New(store, f.Scope, append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)))...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _, _ = guard.Shutdown(t.Context()), store.Close(), rdb.Close() })
				urls[side] = f.Serve(t, app, guard)
			}
			for i, s := range c.steps {
				f.take(t, fmt.Sprintf("reload, %s, request %d", c.name, i+1), urls[s.to], app, s)
			}
			f.reloadInFlight(t, "reload, "+c.name, urls, app, cmp.Or(c.inFlight, problem.InFlight))
			f.reloadAtOnce(t, "reload, "+c.name, urls, app)
		}
	})
}

func (f Framework) take(t *testing.T, what, url string, app *App, s step) {
	t.Helper()
	got := sendSettled(t, url, posted(s.path, s.body), s.path[1:]+s.key)
	is := outcome{status: got.status, code: problem.Code(got.header.Get(problem.Header)), replayed: got.header.Get("Idempotent-Replayed") == "true"}
	if is.ttl = s.want.ttl; is != s.want {
		f.report("%s: got %+v instead of %+v: %s", what, is, s.want, got.body)
	}
	if n := len(app.runsOf(path.Base(s.path))); n != s.runs {
		f.report("%s: %d runs instead of %d", what, n, s.runs)
	}
	if s.want.ttl > 0 {
		left, _ := strconv.Atoi(got.header.Get("Idempotency-TTL"))
		if d := time.Duration(left) * time.Second; d > s.want.ttl || d < s.want.ttl/2 {
			f.report("%s: the key is good for %s, of %s", what, d, s.want.ttl)
		}
	}
}

// reloadInFlight sends a request to the latter server while the former runs it.
func (f Framework) reloadInFlight(t *testing.T, what string, urls [2]string, app *App, want problem.Code) {
	t.Helper()
	call := posted("/reply/"+slow, "")
	done := make(chan answer, 1)
	go func() {
		got, err := try(t.Context(), urls[former], call, "tenant", "in-flight")
		if err != nil {
			f.report("%s: %v", what, err)
		}
		done <- got
	}()
	<-app.entered
	code := send(t, urls[latter], call, "tenant", "in-flight").header.Get(problem.Header)
	if code != string(want) {
		f.report("%s: a request in flight is answered %q instead of %q", what, code, want)
	}
	close(app.release)
	if first := <-done; first.status != http.StatusCreated {
		f.report("%s: the request in flight ended with %d %s", what, first.status, first.body)
	}
	if again := send(t, urls[former], call, "tenant", "in-flight"); again.header.Get("Idempotent-Replayed") != "true" {
		f.report("%s: what was in flight is not replayed: %d %s", what, again.status, again.body)
	}
	if n := len(app.runsOf(slow)); n != 1 {
		f.report("%s: %d runs of the request in flight", what, n)
	}
}

// reloadAtOnce sends one request many times, to both servers at once.
func (f Framework) reloadAtOnce(t *testing.T, what string, urls [2]string, app *App) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if _, err := try(t.Context(), urls[i%2], posted("/reply/scope", ""), "tenant", "at-once"); err != nil {
				f.report("%s: %v", what, err)
			}
		})
	}
	all.Wait()
	if n := len(app.runsOf("scope")); n != 1 {
		f.report("%s: %d runs of a request that came to both at once", what, n)
	}
}

func posted(path, body string) Case {
	if body == "" {
		body = `{"amount":100}`
	}
	return Case{Name: path, Method: http.MethodPost, Path: path, Header: typed("application/json"), Body: body}
}
