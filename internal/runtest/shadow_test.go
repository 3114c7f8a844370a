package runtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Tests of WithShadow.

// lastShadow returns the report of the request that has just been made.
func lastShadow(t *testing.T, events *guardtest.Events) event.Event {
	t.Helper()
	synctest.Wait()
	all := events.All()
	require.NotEmpty(t, all)
	last := all[len(all)-1]
	require.Equal(t, event.Shadow, last.Kind)
	return last
}

// What a live guard would do is told of each request, and none of it is done.
func TestShadowTellsWhatALiveGuardWouldDo(t *testing.T) {
	const run, replay, refused, bypassed = event.Run, event.Replay, event.Refused, event.Bypassed
	type step struct {
		call    guardtest.Call
		answer  func(w http.ResponseWriter)
		would   event.Kind
		code    problem.Code
		attempt int
		err     error
	}
	say := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	k := guardtest.Call{Key: "k"}
	tests := map[string]struct {
		opts  []idempotency.Option
		steps []step
	}{
		"a retry": {nil, []step{
			{call: k, answer: say(201, "one"), would: run, attempt: 1},
			{call: k, answer: say(201, "one"), would: replay, attempt: 1},
			{call: k, answer: say(201, "two"), would: replay, attempt: 1, err: idempotency.ErrShadowDiffers},
			{call: k, answer: say(200, "one"), would: replay, attempt: 1, err: idempotency.ErrShadowDiffers},
		}},
		"another payload": {nil, []step{
			{call: k, answer: say(201, ""), would: run, attempt: 1},
			{call: guardtest.Call{Key: "k", Body: "{}"}, answer: say(201, ""), would: refused, code: problem.KeyReused, attempt: 1},
		}},
		"another tenant": {nil, []step{
			{call: k, answer: say(201, ""), would: run, attempt: 1},
			{call: guardtest.Call{Key: "k", Tenant: "other"}, answer: say(201, ""), would: run, attempt: 1},
		}},
		"a failure": {nil, []step{
			{call: k, answer: say(500, ""), would: run, attempt: 1},
			{call: k, answer: say(201, ""), would: run, attempt: 2},
			{call: k, answer: say(201, ""), would: replay, attempt: 2},
		}},
		"a refusal of the moment": {nil, []step{
			{call: k, answer: say(429, ""), would: run, attempt: 1},
			{call: k, answer: say(429, ""), would: run, attempt: 2},
		}},
		"a panic under Hold": {[]idempotency.Option{idempotency.WithRecovery(idempotency.Hold)}, []step{
			{call: k, answer: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, would: run, attempt: 1},
			{call: k, answer: say(201, ""), would: refused, code: problem.OutcomeUnknown, attempt: 1},
		}},
		"silence": {[]idempotency.Option{idempotency.WithSilence(idempotency.Unknown), idempotency.WithRecovery(idempotency.Hold)}, []step{
			{call: k, answer: func(http.ResponseWriter) {}, would: run, attempt: 1},
			{call: k, answer: say(201, ""), would: refused, code: problem.OutcomeUnknown, attempt: 1},
		}},
		"a large answer": {[]idempotency.Option{idempotency.WithLimits(idempotency.Limits{ResponseBody: 3})}, []step{
			{call: k, answer: say(201, "long"), would: run, attempt: 1},
			{call: k, answer: say(201, "long"), would: refused, code: problem.ResponseNotKept, attempt: 1},
		}},
		"keys": {[]idempotency.Option{idempotency.WithStrictKeys(true)}, []step{
			{call: guardtest.Call{}, answer: say(201, ""), would: bypassed},
			{call: guardtest.Call{Key: "raw"}, answer: say(201, ""), would: refused, code: problem.KeyInvalid},
		}},
		"no key where one is required": {[]idempotency.Option{idempotency.WithRequired(true)}, []step{
			{call: guardtest.Call{}, answer: say(201, ""), would: refused, code: problem.KeyMissing},
		}},
		"a large body": {[]idempotency.Option{idempotency.WithLimits(idempotency.Limits{RequestBody: 4})}, []step{
			{call: k, answer: say(201, ""), would: refused, code: problem.BodyTooLarge},
		}},
		"no body": {nil, []step{
			{call: guardtest.Call{Key: "k", NoBody: true}, answer: say(201, ""), would: run, attempt: 1},
			{call: guardtest.Call{Key: "k", NoBody: true}, answer: say(201, ""), would: replay, attempt: 1},
		}},
	}
	for name, tt := range tests {
		guardtest.Bubble(t, name, func(t *testing.T) {
			var answer func(http.ResponseWriter)
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				_, op := idempotency.FromContext(r.Context())
				require.False(t, op)
				_, _ = io.Copy(io.Discard, r.Body)
				answer(w)
			}}
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, append(tt.opts, idempotency.WithShadow(true))...)
			for i, s := range tt.steps {
				answer = s.answer
				var got guardtest.Reply
				guardtest.PanicOf(func() { got = p.Attempt(t, s.call) })
				require.EqualValues(t, i+1, h.Runs.Load())
				require.Empty(t, got.Header.Get("Idempotency-Key"))
				e := lastShadow(t, p.Events)
				require.Equal(t, s.would, e.Would, "%d: %v", i, e.Err)
				require.Equal(t, s.code, e.Code)
				require.Equal(t, s.attempt, e.Attempt)
				require.ErrorIs(t, e.Err, s.err)
				require.Equal(t, http.MethodPost, e.Method)
			}
			require.Len(t, p.Events.All(), len(tt.steps))
			require.NoError(t, p.Guard.Shutdown(guardtest.Shortly(t)))
		})
	}
}

// A duplicate of a request in flight would be refused, or wait.
func TestShadowOfARequestInFlight(t *testing.T) {
	for wait, want := range map[time.Duration]event.Kind{0: event.Refused, 2 * time.Minute: event.Replay} {
		synctest.Test(t, func(t *testing.T) {
			h := guardtest.Answering(time.Minute, "done") // longer than the lease
			read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				h.ServeHTTP(w, r)
			})
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), read, idempotency.WithShadow(true), idempotency.WithWait(wait))
			go p.Attempt(t, guardtest.Call{Key: "k"})
			time.Sleep(50 * time.Second)
			p.Attempt(t, guardtest.Call{Key: "k"})
			synctest.Wait()
			var would []event.Kind
			for _, e := range p.Events.All() {
				would = append(would, e.Would)
			}
			require.ElementsMatch(t, []event.Kind{event.Run, want}, would)
			p.RequireQuiet(t)
		})
	}
}

// A store that hangs, or fails, delays nobody. What is not looked at is told.
func TestShadowDelaysNobody(t *testing.T) {
	for name, fault := range map[string]guardtest.Fault{
		"hangs": guardtest.Hang, "fails": guardtest.Refuse, "panics": guardtest.Panic, "is deaf": guardtest.Deaf(make(chan struct{})),
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			h := &guardtest.Counter{}
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithShadow(true))
			hearing := make(chan struct{})
			if name == "is deaf" {
				fault = guardtest.Deaf(hearing)
			}
			p.Store.Fail(fault)
			start := time.Now()
			const n = 1024 + 200 // more than a shadow keeps
			for range n {
				require.Equal(t, http.StatusCreated, p.Do(t, guardtest.Call{Key: "k"}).Status)
			}
			require.Zero(t, time.Since(start))
			require.EqualValues(t, n, h.Runs.Load())
			synctest.Wait()
			require.NoError(t, p.Guard.Shutdown(guardtest.Shortly(t)))
			time.Sleep(time.Minute)
			close(hearing)
			synctest.Wait()
			require.Equal(t, n, p.Events.Count(event.Shadow))
			for _, e := range p.Events.All() {
				require.Error(t, e.Err)
				require.True(t, e.Would == event.Refused && e.Code == problem.StoreUnavailable || e.Would == "", e)
			}
			if name == "is deaf" || name == "hangs" {
				passedOver := slices.DeleteFunc(p.Events.All(), func(e event.Event) bool { return e.Would != "" })
				require.Len(t, passedOver, n-1024)
			}
			p.RequireQuiet(t)
		})
	}
}

// What a shadow has recorded is nothing to a live guard, nor the other way round.
func TestShadowIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		h := &guardtest.Counter{}
		before := guardtest.NewProcess(t, st, h, idempotency.WithShadow(true))
		live := guardtest.NewProcess(t, st, h)
		for range 2 {
			before.Do(t, guardtest.Call{Key: "k"})
			synctest.Wait()
		}
		got := live.Do(t, guardtest.Call{Key: "k"})
		require.False(t, got.Replayed())
		require.Equal(t, `{"run":3}`, got.Body)
		require.True(t, live.Do(t, guardtest.Call{Key: "k"}).Replayed())

		// Of the handler's answer, the store has nothing.
		page, err := st.List(t.Context(), store.Query{})
		require.NoError(t, err)
		require.Len(t, page.Entries, 2)
		for _, entry := range page.Entries {
			rec, err := st.GetAnswer(t.Context(), entry.Key)
			require.NoError(t, err)
			require.LessOrEqual(t, strings.Count(string(rec.Answer), `"run"`), 1)
		}
	})
}

// A handler that does not read its body to the end is left alone too.
func TestShadowOfAnUnreadBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, err := io.ReadFull(r.Body, make([]byte, 3))
			require.NoError(t, err)
			w.WriteHeader(http.StatusAccepted)
		}}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithShadow(true))
		require.Equal(t, http.StatusAccepted, p.Do(t, guardtest.Call{Key: "k"}).Status)
		e := lastShadow(t, p.Events)
		require.Empty(t, e.Would)
		require.ErrorContains(t, e.Err, "has not read the body")
		require.Zero(t, p.Store.Total())
	})
}

// A function of the route that panics is reported, and panics nowhere else.
func TestShadowKeepsPanicsFromTheRequest(t *testing.T) {
	for name, opt := range map[string]idempotency.Option{
		"fingerprint": idempotency.WithFingerprint(func(*http.Request, []byte) (idempotency.Fingerprint, error) { panic("f") }),
		"outcome":     idempotency.WithOutcome(func(int, http.Header) idempotency.Outcome { panic("o") }),
		"key":         idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { panic("k") }),
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{}, idempotency.WithShadow(true), opt)
			require.Equal(t, `{"run":1}`, p.Do(t, guardtest.Call{Key: "k"}).Body)
			require.ErrorContains(t, lastShadow(t, p.Events).Err, "panicked")
		})
	}
}

// Functions of Do are left alone like handlers.
func TestShadowOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{}, idempotency.WithShadow(true))
		runs := 0
		do := func(payload string, err error) event.Event {
			before := runs
			v, result, got := idempotency.Do(t.Context(), p.Guard, idempotency.Key{Scope: "queue", Value: "m"},
				func(ctx context.Context) (int, error) {
					_, op := idempotency.FromContext(ctx)
					require.False(t, op)
					runs++
					return runs, err
				}, idempotency.WithPayload([]byte(payload)))
			require.Equal(t, err, got)
			require.Equal(t, before+1, v)
			require.Equal(t, idempotency.Result{Attempt: 1}, result)
			return lastShadow(t, p.Events)
		}
		require.Equal(t, event.Run, do("a", errors.New("down")).Would)
		e := do("a", nil)
		require.Equal(t, event.Run, e.Would)
		require.Equal(t, 2, e.Attempt)
		require.Equal(t, event.Replay, do("a", nil).Would)
		require.Equal(t, problem.KeyReused, do("b", nil).Code)
	})
}

// A handler can do with its writer what it could do before, on a real connection.
func TestShadowLeavesTheWriterAlone(t *testing.T) {
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithShadow(true))
	mux := http.NewServeMux()
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "After")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "a")
		w.(http.Flusher).Flush()
		_, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("b"))
		w.Header().Set("After", "c")
		if err != nil || http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)) != nil {
			panic("not as before")
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nraw\n")
		_ = rw.Flush()
	})
	server := httptest.NewServer(guard.Handler(mux))
	t.Cleanup(server.Close)
	post := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, strings.NewReader("{}"))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		if path == "/hijack" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "x")
		}
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	resp := post("/flush") //nolint:bodyclose // at the end of the test
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "ab", string(body))
	require.Equal(t, "c", resp.Trailer.Get("After"))
	resp = post("/hijack") //nolint:bodyclose // likewise
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "raw\n", line)
}

// A guard inside a guard would let the request pass, and so would one inside a function of Do.
func TestShadowInsideAShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{}, idempotency.WithShadow(true))
		would := func() (all []event.Kind) {
			synctest.Wait()
			for _, e := range p.Events.All() {
				all = append(all, e.Would)
			}
			slices.Sort(all)
			return all
		}
		h := p.Guard.Handler(p.Guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })))
		guardtest.ServeRecorder(t, h).Do(t, guardtest.Call{Key: "k", Body: "body"})
		require.Equal(t, []event.Kind{event.Nested, event.Run}, would())
		key := idempotency.Key{Scope: "queue", Value: "m"}
		_, _, err := idempotency.Do(t.Context(), p.Guard, key, func(ctx context.Context) (int, error) {
			for _, k := range []idempotency.Key{key, {Scope: "queue", Value: "other"}} {
				if _, _, err := idempotency.Do(ctx, p.Guard, k, func(context.Context) (int, error) { return 1, nil }); err != nil {
					return 0, err
				}
			}
			return 2, nil
		})
		require.NoError(t, err)
		require.Equal(t, []event.Kind{
			event.Nested, event.Nested, event.Run, event.Run, event.Run,
		}, would())
	})
}

// A shadow inside another one, or inside a live guard, tells what a live guard would do there: it refuses if its settings
// would be lost.
func TestShadowTellsOfLostSettings(t *testing.T) {
	for _, live := range []bool{true, false} {
		for ttl, want := range map[time.Duration]event.Event{
			24 * time.Hour: {Would: event.Nested}, time.Minute: {Would: event.Refused, Code: problem.Misplaced},
		} {
			guardtest.Bubble(t, fmt.Sprint(want.Would, ", live ", live), func(t *testing.T) {
				reads := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
				var seen guardtest.Events
				outer := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithShadow(!live))
				inner := outer.With(idempotency.WithTTL(ttl), idempotency.WithShadow(true), idempotency.WithObserver(seen.Observe))
				guardtest.ServeRecorder(t, outer.Handler(inner.Handler(reads))).Do(t, guardtest.Call{Key: "k", Body: "body"})
				synctest.Wait()
				got := seen.All()[0]
				require.Equal(t, want, event.Event{Would: got.Would, Code: got.Code})
			})
		}
	}
}

// A judgedValue says how its run has ended.
type judgedValue idempotency.Outcome

func (v judgedValue) Outcome() idempotency.Outcome {
	if v == 0 {
		panic("bug")
	}
	return idempotency.Outcome(v)
}

func (judgedValue) Refused() bool { return false }

// A value that says how its run has ended is asked, as by a live guard.
func TestShadowAsksAJudgedValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{}, idempotency.WithShadow(true))
		for value, again := range map[judgedValue]event.Kind{
			judgedValue(idempotency.Final):       event.Replay,
			judgedValue(idempotency.NotExecuted): event.Run,
			judgedValue(idempotency.Unknown):     event.Run,
			17:                                   event.Run, // it is not an outcome
			0:                                    event.Run,
		} {
			for _, want := range []event.Kind{event.Run, again} {
				got, _, err := idempotency.Do(t.Context(), p.Guard, idempotency.Key{Scope: "queue", Value: fmt.Sprint(uint8(value))},
					func(context.Context) (judgedValue, error) { return value, nil })
				require.NoError(t, err)
				require.Equal(t, value, got)
				require.Equal(t, want, lastShadow(t, p.Events).Would, "%d", value)
			}
		}
	})
}
