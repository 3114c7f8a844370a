package eventtest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// span returns the span of that number.
func span(n byte) event.TraceContext {
	return event.TraceContext{TraceID: [16]byte{0xa0, n}, SpanID: [8]byte{0xb0, n}, Flags: 1}
}

// spanKey is where a context holds its span, as it does with a tracing library.
type spanKey struct{}

var withTrace = adapter.WithTraceContext(func(ctx context.Context) event.TraceContext {
	t, _ := ctx.Value(spanKey{}).(event.TraceContext)
	return t
})

// traced begins a span for each request that names one, as a middleware does.
func traced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := r.Header.Get("X-Span"); n != "" {
			r = r.WithContext(context.WithValue(r.Context(), spanKey{}, span(n[0]-'0')))
		}
		h.ServeHTTP(w, r)
	})
}

// inSpan is the call in the span of that digit.
func inSpan(n string, c guardtest.Call) guardtest.Call {
	c.Header = http.Header{"X-Span": {n}}
	return c
}

// newTraced returns a process whose requests are in spans.
func newTraced(t *testing.T, st idempotency.Store, h http.Handler, opts ...idempotency.Option) *guardtest.Process {
	t.Helper()
	p := guardtest.NewProcess(t, st, h, append(opts, withTrace)...)
	p.Server = guardtest.ServeRecorder(t, traced(p.Guard.Handler(h)))
	return p
}

// A replay points to the run that made its answer, in whatever process that was.
func TestReplayPointsToTheTraceOfItsRun(t *testing.T) {
	guardtest.OnEachSharedStore(t, func(t *testing.T, st idempotency.Store) {
		p, q := newTraced(t, st, &guardtest.Counter{}), newTraced(t, st, &guardtest.Counter{})
		untraced := guardtest.NewProcess(t, st, &guardtest.Counter{})
		call := guardtest.Call{Key: "k"}
		p.Do(t, inSpan("1", call))
		require.True(t, q.Do(t, inSpan("2", call)).Replayed())
		require.True(t, untraced.Do(t, call).Replayed())
		other := call
		other.Body = "{}"
		q.Do(t, inSpan("3", other))

		require.Equal(t, span(1), only(p.Events, event.Run)[0].Trace)
		require.Equal(t, span(1), only(q.Events, event.Replay)[0].Trace)
		require.Equal(t, span(1), only(q.Events, event.Refused)[0].Trace)
		require.Equal(t, span(1), only(untraced.Events, event.Replay)[0].Trace)

		untraced.Do(t, guardtest.Call{Key: "l"})
		q.Do(t, inSpan("4", guardtest.Call{Key: "l"}))
		require.Zero(t, only(q.Events, event.Replay)[1].Trace)
	})
}

// A job's events are in the trace of its message.
func TestTraceOfAJob(t *testing.T) {
	events := &guardtest.Events{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), withTrace, idempotency.WithObserver(events.Observe))
	do := func(n byte, payload string) error {
		ctx := context.WithValue(t.Context(), spanKey{}, span(n))
		_, _, err := idempotency.Do(ctx, guard, idempotency.Key{Scope: "acme", Value: "k"},
			func(context.Context) (int, error) { return 1, nil }, idempotency.WithPayload([]byte(payload)))
		return err
	}
	require.NoError(t, do(1, "a"))
	require.NoError(t, do(2, "a"))
	require.ErrorIs(t, do(3, "b"), idempotency.ErrKeyReused)
	for _, e := range events.All() {
		require.Equal(t, span(1), e.Trace, e.Kind)
	}
	require.Equal(t, event.PartBody, only(events, event.Refused)[0].Differs)
}

// A held key points to the run that nobody knows the outcome of, in each process. The log joins the incident to
// its trace.
func TestHeldKeyPointsToItsTrace(t *testing.T) {
	st := idempotency.NewMemoryStore()
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	var log guardtest.LockedBuffer
	p := newTraced(t, st, fails, idempotency.WithRecovery(idempotency.Hold), idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	q := newTraced(t, st, fails, idempotency.WithRecovery(idempotency.Hold))
	p.Do(t, inSpan("1", guardtest.Call{Key: "k"}))
	q.Do(t, inSpan("2", guardtest.Call{Key: "k"}))
	require.Equal(t, span(1), only(p.Events, event.Held)[0].Trace)
	require.Equal(t, span(1), only(q.Events, event.Held)[0].Trace)
	require.Contains(t, log.String(), "trace_id="+hex.EncodeToString([]byte{0xa0, 1}))
}

// mismatches are requests that are not the one of the key, by the parts that differ.
var mismatches = map[string]struct {
	call  guardtest.Call
	parts event.RequestParts
}{
	"method":       {guardtest.Call{Method: http.MethodPatch}, event.PartMethod},
	"path":         {guardtest.Call{Path: "/refunds"}, event.PartPath},
	"query":        {guardtest.Call{Path: "/charges?a=1"}, event.PartQuery},
	"content-type": {guardtest.Call{Header: http.Header{"Content-Type": {"text/plain"}}}, event.PartContentType},
	"body":         {guardtest.Call{Body: `{"amount":999}`}, event.PartBody},
	"content-type,body": {
		guardtest.Call{Body: "amount=100", Header: http.Header{"Content-Type": {"text/plain"}}},
		event.PartContentType | event.PartBody,
	},
	"path,body": {guardtest.Call{Path: "/refunds", Body: "{}"}, event.PartPath | event.PartBody},
}

// explaining lets a route tell its clients in which parts a request differs.
var explaining = idempotency.WithErrorWriter(func(w http.ResponseWriter, _ *http.Request, p problem.Document) {
	w.Header()["X-Differs"] = p.Differs
	w.Header().Set("Content-Type", problem.ContentType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
})

func differsIn(r guardtest.Reply) []string { return r.Header["X-Differs"] }

// A mismatch names the parts that differ, in every process that meets it, also in one that makes
// other fingerprints after a deployment. A client hears of them only from a
// writer of the route.
func TestMismatchNamesThePartsThatDiffer(t *testing.T) {
	own := func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, []byte(r.Method), []byte(r.URL.String()), []byte(r.Header.Get("Content-Type")), body), nil
	}
	guardtest.OnEachSharedStore(t, func(t *testing.T, st idempotency.Store) {
		first := guardtest.NewProcess(t, st, &guardtest.Counter{})
		for function, p := range map[string]*guardtest.Process{
			"same": guardtest.NewProcess(t, st, &guardtest.Counter{}),
			"json": guardtest.NewProcess(t, st, &guardtest.Counter{}, explaining,
				idempotency.WithFingerprint(idempotency.JSONFingerprint)),
			"own": guardtest.NewProcess(t, st, &guardtest.Counter{}, explaining,
				idempotency.WithFingerprint(own, idempotency.RawFingerprint)),
		} {
			for names, c := range mismatches {
				c.call.Key = function + strings.ReplaceAll(names, ",", "-")
				first.Do(t, guardtest.Call{Key: c.call.Key})
				got := p.Do(t, c.call)
				guardtest.RequireProblem(t, got, http.StatusConflict, problem.KeyReused)
				refusals := only(p.Events, event.Refused)
				e := refusals[len(refusals)-1]
				require.Equal(t, c.parts, e.Differs)
				require.Equal(t, names, e.Differs.String())
				require.NotContains(t, got.Body, "differs")
				if function != "same" {
					require.Equal(t, strings.Split(names, ","), differsIn(got))
				}
				require.NotContains(t, got.Body, "999")
			}
		}
		require.Zero(t, only(first.Events, event.Run)[0].Differs)
	})
}

// Of long bodies, a difference in the middle has no checksum. It is told if nothing else differs, and
// if the function counts nothing else.
func TestMismatchInTheMiddleOfALongBody(t *testing.T) {
	own := func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, []byte(r.Header.Get("X-Version")), body), nil
	}
	const size = 64 << 10
	body := strings.Repeat(" ", size)
	other := body[:size/2] + "\n" + body[size/2+1:]
	type row struct {
		function idempotency.FingerprintFunc
		call     guardtest.Call
		want     event.RequestParts
	}
	guardtest.Each(t, map[string]row{
		"middle":            {idempotency.RawFingerprint, guardtest.Call{Body: other}, event.PartBody},
		"middle, json":      {idempotency.JSONFingerprint, guardtest.Call{Body: other}, event.PartBody},
		"end":               {idempotency.RawFingerprint, guardtest.Call{Body: body[1:] + "\n"}, event.PartBody},
		"length":            {idempotency.RawFingerprint, guardtest.Call{Body: body + " "}, event.PartBody},
		"path":              {idempotency.RawFingerprint, guardtest.Call{Path: "/b", Body: body}, event.PartPath},
		"middle and path":   {idempotency.RawFingerprint, guardtest.Call{Path: "/b", Body: other}, event.PartPath},
		"end and path":      {idempotency.RawFingerprint, guardtest.Call{Path: "/b", Body: "\n" + body[1:]}, event.PartPath | event.PartBody},
		"middle, own":       {own, guardtest.Call{Body: other}, 0},
		"none of the parts": {own, guardtest.Call{Body: body, Header: http.Header{"X-Version": {"2"}}}, 0},
	}, func(t *testing.T, c row) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{},
			idempotency.WithFingerprint(c.function), explaining)
		p.Do(t, guardtest.Call{Key: "k", Body: body})
		c.call.Key = "k"
		got := p.Do(t, c.call)
		guardtest.RequireProblem(t, got, http.StatusConflict, problem.KeyReused)
		require.Equal(t, c.want, only(p.Events, event.Refused)[0].Differs)
		require.Equal(t, c.want.Names(), differsIn(got))
	})
}

// The checksums do not know the function: a body that it takes for the same is named beside the part
// that makes the mismatch.
func TestMismatchNamesABodyByItsBytes(t *testing.T) {
	p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{},
		idempotency.WithFingerprint(idempotency.JSONFingerprint), explaining)
	p.Do(t, guardtest.Call{Key: "k", Body: `{"a":1,"b":2}`})
	reordered := guardtest.Call{Key: "k", Body: `{"b":2,"a":1}`}
	require.True(t, p.Do(t, reordered).Replayed())
	reordered.Path = "/charges?a=1"
	require.Equal(t, []string{"query", "body"}, differsIn(p.Do(t, reordered)))
}

// Notes are for those who look. A store that knows nothing of them, or whose notes somebody has
// altered, changes nothing else.
func TestNotesDecideNothing(t *testing.T) {
	forged := append([]byte{2}, make([]byte, 45)...)
	one := store.AppendNote(nil, forged)
	for name, notes := range map[string][]byte{
		"none": nil, "empty": {0}, "foreign": []byte("something else"), "cut off": one[:20],
		"newer": store.AppendNote(nil, append([]byte{3}, forged[1:]...)), "forged": one, "many": bytes.Repeat(one, 100),
	} {
		t.Run(name, func(t *testing.T) {
			h := &guardtest.Counter{}
			p := newTraced(t, &forgetful{idempotency.NewMemoryStore(), notes}, h, explaining)
			p.Do(t, inSpan("1", guardtest.Call{Key: "k"}))
			require.True(t, p.Do(t, inSpan("2", guardtest.Call{Key: "k"})).Replayed())
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k", Body: "{}"}), http.StatusConflict, problem.KeyReused)
			require.EqualValues(t, 1, h.Runs.Load())
			for _, e := range p.Events.All()[1:] {
				require.Zero(t, e.Trace)
			}
			differs := only(p.Events, event.Refused)[0].Differs
			require.Equal(t, name == "forged" || name == "many", differs != 0)
		})
	}
}

// A forgetful store has other notes than those that it was given.
type forgetful struct {
	idempotency.Store
	notes []byte
}

func (s *forgetful) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, key, c)
	rec.Notes, rec.Label = s.notes, ""
	return rec, err
}

// An operator's look at a key tells route, start and trace of each of its runs, in any process and
// of any number of attempts the last sixteen.
func TestLookupTellsTheRuns(t *testing.T) {
	guardtest.OnEachSharedStore(t, func(t *testing.T, st idempotency.Store) {
		const runs = 20
		fails := guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }}
		p := newTraced(t, st, &fails, idempotency.WithRoute("POST /organizations/{organization}/projects/{project}/charges"))
		key := idempotency.Key{Scope: "acme", Value: "k"}
		begun := time.Now().Truncate(time.Millisecond)
		for n := range runs {
			p.Do(t, inSpan(fmt.Sprint(n%10), guardtest.Call{Key: "k", Path: "/organizations/1/projects/2/charges"}))
		}
		info, err := guardtest.NewGuard(t, st).Lookup(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, runs, info.Attempt)
		require.Equal(t, "POST /organizations/{organization}/projects/{project}/charges", info.Route)
		require.Equal(t, span(9), info.Trace)
		require.Len(t, info.Runs, 16)
		before := begun
		for i, r := range info.Runs {
			require.Equal(t, runs-15+i, r.Attempt)
			require.Equal(t, span(byte((runs-16+i)%10)), r.Trace)
			require.False(t, r.Started.Before(before))
			before = r.Started
		}
		require.Equal(t, before, info.Started)
		require.WithinDuration(t, time.Now(), info.Started, time.Minute)
	})
}

// A route is a pattern of any length, and stores keep the beginning.
func TestLongPatternIsCut(t *testing.T) {
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	mux := http.NewServeMux()
	pattern := "POST /" + strings.Repeat("x", 57) + "ü/{id}"
	mux.Handle(pattern, guard.Handler(&guardtest.Counter{}))
	guardtest.ServeRecorder(t, mux).Do(t, guardtest.Call{Key: "k", Path: "/" + strings.Repeat("x", 57) + "ü/1"})
	info := guardtest.Lookup(t, guard, idempotency.Key{Scope: "acme", Value: "k"})
	require.Equal(t, "POST /"+strings.Repeat("x", 57), info.Route)
}

// A process dies, and a retry takes its key over in another one. That is an incident, whose event
// tells of all runs.
func TestTakeoverIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		die := make(chan struct{})
		dying := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-die })
		call := guardtest.Call{Key: "k", Tenant: "acme"}
		begun := time.Now()
		var dead []*guardtest.Process
		defer func() {
			for _, p := range dead {
				p.Store.Heal()
			}
			close(die)
		}()
		for n := range 2 {
			p := newTraced(t, st, dying)
			p.Start(t, inSpan(fmt.Sprint(n+1), call))
			p.Store.Fail(guardtest.Refuse)
			dead = append(dead, p)
			time.Sleep(guardtest.LeaseTime + time.Second)
		}
		require.Equal(t, 1, dead[1].Events.Count(event.Takeover))
		p := newTraced(t, st, &guardtest.Counter{}, idempotency.WithRoute("charges"))
		require.Equal(t, http.StatusCreated, p.Do(t, inSpan("3", call)).Status)

		e := only(p.Events, event.Takeover)[0]
		require.True(t, e.Kind.Incident())
		require.Equal(t, "charges", e.Route)
		require.Equal(t, "acme", e.Scope)
		require.NotEmpty(t, e.OperationID)
		require.Equal(t, 3, e.Attempt)
		require.Equal(t, span(2), e.Trace)
		after := func(n time.Duration) time.Time { return begun.Add(n * (guardtest.LeaseTime + time.Second)) }
		require.Len(t, e.Runs, 3)
		for i, r := range e.Runs {
			require.Equal(t, i+1, r.Attempt)
			require.True(t, after(time.Duration(i)).Equal(r.Started), "%v", r.Started)
			require.Equal(t, span(byte(i+1)), r.Trace)
		}
		p.Do(t, call)
		require.Equal(t, 1, p.Events.Count(event.Takeover))
	})
}

// The next attempt of a run that has ended is not a takeover.
func TestRetryIsNoTakeover(t *testing.T) {
	fails := guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }}
	p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &fails)
	for range 3 {
		p.Do(t, guardtest.Call{Key: "k"})
	}
	require.EqualValues(t, 3, fails.Runs.Load())
	require.Zero(t, p.Events.Count(event.Takeover))
}

func TestTraceContextIsWrittenAsTraceparent(t *testing.T) {
	var c event.TraceContext
	require.Empty(t, c.String())
	_, err := hex.Decode(c.TraceID[:], []byte("4bf92f3577b34da6a3ce929d0e0e4736"))
	require.NoError(t, err)
	_, err = hex.Decode(c.SpanID[:], []byte("00f067aa0ba902b7"))
	require.NoError(t, err)
	c.Flags = 1
	require.Equal(t, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", c.String())
}

// A panic of the function is the program's own: nothing has been claimed.
func TestTraceContextMayPanic(t *testing.T) {
	st := idempotency.NewMemoryStore()
	panics := func(context.Context) event.TraceContext { panic(errors.New("no tracer")) }
	p := guardtest.NewProcess(t, st, &guardtest.Counter{}, adapter.WithTraceContext(panics))
	require.Panics(t, func() { p.Do(t, guardtest.Call{Key: "k"}) })
	require.Zero(t, st.Len())
	require.NoError(t, p.Guard.Shutdown(t.Context()))
}
