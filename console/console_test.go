package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// This file looks at the screens, and decides on them.

// The JSON of each screen and of each record is what idem -o json prints, where both show it.
func TestJSON(t *testing.T) {
	s := filled(t)
	b, released := s.as(ada).json(), "/records/"+s.look("order-79").Record
	for name, target := range map[string]string{
		"now": "/", "now-route": "/?route=POST+/payouts", "now-none": "/?route=none", "store": "/store",
		"held": "/records/" + s.look("payout-1").Record, "step": "/records/" + s.look("order-77").Record,
		"in-doubt": "/records/" + s.look("charge-5").Record, "completed": "/records/" + s.look("order-78").Record,
		"released": released, "answer": "/records/" + s.look("order-78").Record + "?answer=1",
	} {
		got := b.get(target)
		require.Equal(t, http.StatusOK, got.Code, "%s: %s", name, got.Body)
		require.Equal(t, "application/json", got.Header().Get("Content-Type"))
		requireGolden(t, name, got.Body.String())
	}
	for name, got := range map[string]*httptest.ResponseRecorder{
		"decision":       b.decide(s.look("payout-1"), "final", "status", "201", "body", `{"id":7}`, "content_type", "application/json"),
		"refused-step":   b.decide(s.look("order-77"), "not-executed"),
		"refused-doubt":  b.decide(s.look("charge-5"), "resume"),
		"refused-reason": b.decide(s.look("payout-2"), "resume", "reason", " "),
		"refused-state":  b.decide(s.look("order-78"), "resume"),
		"forgotten":      b.decide(s.look("order-79"), "forget"),
	} {
		requireGolden(t, name, got.Body.String())
	}
	gone := b.get(released)
	require.Equal(t, http.StatusNotFound, gone.Code)
	requireGolden(t, "gone", gone.Body.String())
	b.accept = "text/html"
	require.Contains(t, b.get(released).Body.String(), "by ada: the bank has nothing; it was released, attempt 1")
}

// What each screen says to people.
func TestScreens(t *testing.T) {
	s := filled(t)
	running, end := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(end) })
	go s.post("POST /transfers", "slow", func(http.ResponseWriter, *http.Request) { close(running); <-end }, hold)
	<-running
	for target, says := range map[string][]string{
		"/": {
			"4 requests wait for a decision, the oldest for", "The store is well.", "2 keys, held", "POST /payouts", "step in doubt", "outcome unknown",
			"Oldest runs in flight", "POST /transfers", "records/" + s.look("slow").Record,
		},
		"/?route=none":                          {"No request of none waits for a decision.", "Show all routes"},
		"/find":                                 {"By tenant and key", "By a reference", "All of a tenant", "By a trace"},
		"/store":                                {"<code>memory.Store</code>", "Held</dt><dd>4</dd>", "on routes that hold</dt><dd>1</dd>", "Records</dt><dd>7</dd>", "records</dt><dd>7 of 1000000</dd>", " KiB of 1.0 GiB</dd>", "fingerprint</dt><dd>writes 1–6, reads 1–6", "Runs in flight</dt><dd>1</dd>", "go1."},
		"/records/" + s.look("slow").Record:     {"Attempt 1 has been running for", "claimed"},
		"/records/" + s.look("order-77").Record: {"Nobody knows whether attempt 1 has had its effect", "has a recorded result, so it has happened", "It takes the recorded result of"},
		"/records/" + s.look("charge-5").Record: {"tick it", "<dt>Ends</dt><dd>never", `name="not_done" value="charge"`, "Let the next request go on as attempt 2"},
		"/records/" + s.look("order-78").Record: {"Every retry gets it", `<dt>Ends</dt><dd><time datetime="`, "Show the answer", "the recorded answer is lost"},
	} {
		got := s.as(ada).get(target)
		require.Equal(t, http.StatusOK, got.Code, target)
		for _, part := range says {
			require.Contains(t, got.Body.String(), part, target)
		}
	}
	require.NotContains(t, s.as(ada).get("/records/"+s.look("slow").Record).Body.String(), "<form method", "what runs is left alone")
}

func TestPages(t *testing.T) {
	s := serve(t)
	for i := range pageSize + 5 {
		s.post("POST /payouts", "payout-"+itoa(i), broken, hold)
	}
	b := s.as(viewer)
	first := b.get("/").Body.String()
	require.Contains(t, first, "55 requests wait for a decision")
	_, link, _ := strings.Cut(first, `href="./?cursor=`)
	link, _, _ = strings.Cut(link, `"`)
	second := b.get("/?cursor=" + link).Body.String()
	require.Contains(t, second, "55 requests wait for a decision")
	require.Equal(t, pageSize, strings.Count(first, `role="rowheader"`))
	require.Equal(t, 5, strings.Count(second, `role="rowheader"`))
	require.Equal(t, http.StatusBadRequest, b.get("/?cursor=nonsense").Code)
}

// Each decision does what it says, is reported with who has made it and why, and is logged.
func TestDecisions(t *testing.T) {
	type row struct {
		key, word string
		more      []string
		state     store.State // 0 for none
		says      string
	}
	guardtest.Each(t, map[string]row{
		"final":        {"payout-1", "final", []string{"status", "201", "body", "a\r\nb", "location", "/payouts/1"}, store.Completed, "Every retry gets the answer that you give, for 24h."},
		"not executed": {"payout-1", "not-executed", nil, store.Released, "from the beginning"},
		"resume":       {"order-77", "resume", nil, store.Released, "It takes the recorded result of"},
		"not done":     {"charge-5", "resume", []string{"not_done", "charge"}, store.Released, "be sure that it has not happened"},
		"forget":       {"payout-1", "forget", nil, 0, "runs as the first"},
	}, func(t *testing.T, c row) {
		s := filled(t)
		i, b := s.look(c.key), s.as(ada)
		for range 2 { // a form that is sent twice is one decision
			got := b.decide(i, c.word, c.more...)
			require.Equal(t, http.StatusOK, got.Code, got.Body)
			require.Contains(t, got.Body.String(), c.says)
			require.Contains(t, got.Body.String(), "the bank has nothing")
		}
		kind := event.Resolved
		if c.state == 0 {
			_, err := s.guard.Lookup(t.Context(), idempotency.Key{Record: i.Record})
			require.ErrorIs(t, err, idempotency.ErrNotFound)
			kind = event.Forgotten
		} else {
			require.Equal(t, c.state, s.look(c.key).State)
			require.Len(t, s.look(c.key).Decisions, 1)
		}
		var heard event.Event
		for _, e := range s.events.All() {
			if e.Kind == kind {
				heard = e
			}
		}
		require.Equal(t, "ada", heard.Actor)
		require.Equal(t, "the bank has nothing", heard.Reason)
		require.Len(t, heard.Decision, 32)
		require.Contains(t, b.decide(i, c.word, c.more...).Body.String(), heard.Decision)
		require.Contains(t, s.log.String(), "decision="+heard.Decision+` actor=ada reason="the bank has nothing"`)
		require.Equal(t, 1, s.events.Count(kind))
		if c.word == "final" {
			replay := s.post("POST /payouts", c.key, broken, hold)
			require.Equal(t, http.StatusCreated, replay.Code)
			require.Equal(t, "a\nb", replay.Body.String())
			require.Equal(t, "/payouts/1", replay.Header().Get("Location"))
		}
	})
}

// A form that is sent again after its key has run and is held anew is no decision about what is held now.
func TestFormIsSentAgainAfterARun(t *testing.T) {
	s := filled(t)
	i, b := s.look("payout-1"), s.as(ada)
	require.Equal(t, http.StatusOK, b.decide(i, "resume").Code)
	s.post("POST /payouts", "payout-1", broken, hold)
	require.Equal(t, store.Held, s.look("payout-1").State)
	require.Equal(t, http.StatusConflict, b.decide(i, "resume").Code)

	i = s.look("order-77")
	require.Equal(t, http.StatusOK, b.decide(i, "final", "status", "201").Code)
	require.NoError(t, s.guard.Forget(t.Context(), i.Key, s.look("order-77").Seen(), idempotency.Decision{})) // by somebody elsewhere
	require.Equal(t, http.StatusOK, s.post("POST /orders", "order-77", func(http.ResponseWriter, *http.Request) {}).Code)
	require.Equal(t, 1, s.look("order-77").Attempt)
	require.Equal(t, http.StatusConflict, b.decide(i, "final", "status", "201").Code)
}

// The screen of a key tells its runs and the decisions about them in the order in which they came.
func TestTimeline(t *testing.T) {
	s := filled(t)
	var i idempotency.RecordInfo
	for _, actor := range []string{"ada", "bea"} {
		i = s.look("payout-1")
		got := s.as(Actor{Name: actor, Decide: true}).decide(i, "resume", "reason", "as <"+actor+"> says")
		require.Equal(t, http.StatusOK, got.Code)
		s.post("POST /payouts", "payout-1", broken, hold)
	}
	page, at := s.as(ada).get("/records/"+i.Record).Body.String(), 0
	made := s.look("payout-1").Decisions
	for _, text := range []string{
		"Attempt 1</strong> began", "Decided: resume</strong> by ada", "as &lt;ada&gt; says", made[0].ID, "Attempt 2</strong>", "by bea", made[1].ID, "Attempt 3</strong>",
	} {
		next := strings.Index(page[at:], text)
		require.GreaterOrEqual(t, next, 0, "%s behind %d in %s", text, at, page)
		at += next
	}
	requireGolden(t, "timeline", s.as(ada).json().get("/records/"+i.Record).Body.String())
}

// A form that was sent to one process, and again to another one, is one decision.
func TestFormThatIsSentToTwoProcesses(t *testing.T) {
	s := filled(t)
	i := s.look("payout-1")
	for range 2 {
		require.Equal(t, http.StatusOK, s.as(ada).decide(i, "resume").Code)
	}
	made := s.look("payout-1").Decisions
	require.Len(t, made, 1)
	n := 0
	for _, e := range s.events.All() {
		if e.Kind == event.Resolved {
			require.Equal(t, made[0].ID, e.Decision)
			n++
		}
	}
	require.Equal(t, 2, n)
}

// Of two operators who have seen the same, one decides, and the other learns of it.
func TestTwoOperators(t *testing.T) {
	s := filled(t)
	i, b := s.look("payout-1"), s.as(ada)
	other := s.as(Actor{Name: "bob", Decide: true})
	require.Equal(t, http.StatusOK, b.decide(i, "resume").Code)
	for _, word := range []string{"resume", "not-executed", "final", "forget"} {
		require.Equal(t, http.StatusConflict, other.decide(i, word, "status", "201").Code, word)
	}
	require.Equal(t, http.StatusConflict, b.decide(i, "not-executed").Code)
	require.Equal(t, 1, s.events.Count(event.Resolved))
}

// What is refused changes nothing, and the page says why and keeps what was filled in.
func TestRefusals(t *testing.T) {
	s := filled(t)
	type row struct {
		key, word string
		more      []string
		status    int
		says      string
	}
	guardtest.Each(t, map[string]row{
		"no reason":       {"payout-1", "resume", []string{"reason", " \n"}, 422, "Say how you found it out"},
		"a long reason":   {"payout-1", "resume", []string{"reason", strings.Repeat("x", maxReason+1)}, 422, "a line of the log"},
		"no decision":     {"payout-1", "", nil, 422, "Say final, not-executed, resume or forget."},
		"no status":       {"payout-1", "final", []string{"body", "kept in the form"}, 422, "kept in the form"},
		"a status of 1xx": {"payout-1", "final", []string{"status", "100"}, 422, "from 200 to 599"},
		"body with 204":   {"payout-1", "final", []string{"status", "204", "body", "x"}, 422, "has no body"},
		"nothing seen":    {"payout-1", "resume", []string{"seen", ""}, 400, "does not say what was seen"},
		"nonsense seen":   {"payout-1", "resume", []string{"seen", "held/0/1"}, 400, "does not say what was seen"},
		"another seen":    {"payout-1", "resume", []string{"seen", s.look("payout-2").Seen().String()}, 409, "Changed meanwhile"},
		"step recorded":   {"order-77", "not-executed", nil, 422, "has a recorded result"},
		"step in doubt":   {"charge-5", "resume", nil, 422, "tick it"},
		"completed":       {"order-78", "resume", nil, 409, "Only what is held can be decided"},
		"no resolver":     {"payout-1", "ask", nil, 422, "nobody can be asked"},
	}, func(t *testing.T, c row) {
		before := s.look(c.key)
		got := s.as(ada).decide(before, c.word, c.more...)
		require.Equal(t, c.status, got.Code, got.Body)
		require.Contains(t, strings.ToLower(got.Body.String()), strings.ToLower(c.says))
		require.Equal(t, before.Seen(), s.look(c.key).Seen())
	})
	require.Zero(t, s.events.Count(event.Resolved)+s.events.Count(event.Forgotten))
}

// A decision about what was there shows what is there now, and can be made about that.
func TestChangedMeanwhile(t *testing.T) {
	for _, word := range []string{"final", "not-executed", "resume", "forget"} {
		s := filled(t)
		i := s.look("payout-1")
		require.NoError(t, s.guard.Resolve(t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
		s.post("POST /payouts", "payout-1", broken, hold)
		now := s.look("payout-1").Seen()
		got := s.as(ada).decide(i, word, "status", "201")
		require.Equal(t, http.StatusConflict, got.Code)
		require.Contains(t, got.Body.String(), "you saw held after attempt 1, and now the record is held after attempt 2")
		require.Contains(t, got.Body.String(), now.String(), "the form is about what is there now")
		require.Contains(t, got.Body.String(), "the bank has nothing", "and the reason is still in it")
		require.Contains(t, s.as(ada).json().decide(i, word, "status", "201").Body.String(), `"code":4,`)
		require.Contains(t, s.as(ada).json().decide(i, word, "status", "201").Body.String(), `"now":"`+now.String()+`"`)
		require.Equal(t, now, s.look("payout-1").Seen())
	}
}

// The guard of the route decides: with its sealer, and for its TTL.
func TestGuardOfTheRoute(t *testing.T) {
	s := serve(t)
	sealed := s.guard.With(idempotency.WithRoute("POST /sealed"), idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithTTL(72*time.Hour), hold)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "a")
	r.Header.Set("X-Tenant", "alice")
	sealed.Handler(afterStep("ledger")).ServeHTTP(httptest.NewRecorder(), r)
	i := s.look("a")
	got := s.as(ada).decide(i, "final", "status", "201")
	require.Equal(t, http.StatusUnprocessableEntity, got.Code)
	require.Contains(t, got.Body.String(), "the route seals")
	b := s.browser(Options{Authorize: as(ada), GuardOf: func(route string) *idempotency.Guard {
		if route == "POST /sealed" {
			return sealed
		}
		return nil
	}})
	require.Contains(t, b.get("/records/"+i.Record).Body.String(), "for 3d")
	require.Equal(t, http.StatusOK, b.decide(i, "final", "status", "201").Code)
	s.fill()
	require.Equal(t, http.StatusOK, b.decide(s.look("payout-1"), "resume").Code)
	unknown := b.decide(s.look("order-77"), "final", "status", "201")
	require.Equal(t, http.StatusUnprocessableEntity, unknown.Code)
	require.Contains(t, unknown.Body.String(), "this console has no guard for the route")
	other := s.as(ada).decide(s.look("order-77"), "final", "status", "201")
	require.Equal(t, http.StatusUnprocessableEntity, other.Code)
	require.Contains(t, other.Body.String(), "give it Options.GuardOf")
	answer, err := s.store.(store.Inspector).GetAnswer(t.Context(), i.Record)
	require.NoError(t, err)
	require.NotContains(t, string(answer.Answer), i.Record, "it is sealed")
}

// A sparseStore has pages in which nothing fits, before each that has something.
type sparseStore struct {
	*idempotency.MemoryStore
	empty int
}

func (s *sparseStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	if n, _ := strconv.Atoi(q.Cursor); n < s.empty {
		return store.Page{Next: strconv.Itoa(n + 1)}, nil
	}
	q.Cursor = ""
	return s.MemoryStore.List(ctx, q)
}

// Pages of the store without anything are passed over, and not for ever.
func TestSparseIndex(t *testing.T) {
	for empty, says := range map[int][]string{
		mostPages - 1: {"4 requests wait for a decision", "Decide about all 2 of them", "<p class=\"hint\">None. Runs of routes"},
		mostPages:     {"4 requests wait for a decision", "Nothing is held on this page."},
		1 << 30:       {"Nothing was found that waits for a decision, in the part of the index that was read", "None among the oldest of the index."},
	} {
		s := serveOn(t, &sparseStore{idempotency.NewMemoryStore(), empty})
		s.fill()
		b, looks := s.as(ada), 0
		b.h.(*console).now = func() time.Time { looks++; return noon.Add(time.Duration(looks) * time.Second / 100) }
		for _, part := range says {
			require.Contains(t, b.get("/").Body.String(), part)
		}
	}
}

// Runs that hang are seen on the first screen: those of routes that hold whatever process they are of, and of other routes those
// of this process.
func TestRunsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		other := serveOn(t, s.store)
		ended := make(chan struct{})
		end := sync.OnceFunc(func() { close(ended) })
		defer end()
		hangs := func(http.ResponseWriter, *http.Request) { <-ended }
		first := func(of *service, target string) string { return of.as(viewer).get(target).Body.String() }
		go s.post("POST /charges", "first", hangs)
		time.Sleep(2 * time.Minute)
		go s.post("POST /payouts", "second", hangs, hold)
		time.Sleep(9 * time.Minute)
		page := first(s, "/")
		require.Contains(t, page, "1 run of this process on routes that do not hold has been going on for 11m. The store is well.")
		require.Contains(t, page, "records/"+s.look("first").Record)
		require.Contains(t, page, "records/"+s.look("second").Record)
		require.Less(t, strings.Index(page, s.look("first").Record), strings.Index(page, s.look("second").Record), "the oldest comes first")
		require.NotContains(t, first(s, "/?route=POST+/payouts"), "records/"+s.look("first").Record)
		require.Contains(t, first(s, "/store"), "the oldest for 660 s")
		require.Contains(t, first(other, "/"), "No request waits for a decision. The store is well.")
		require.Contains(t, first(s, "/records/"+s.look("second").Record), "Attempt 1 has been running for 9m. Its lease lasts for another")

		time.Sleep(2 * time.Minute)
		require.Contains(t, first(s, "/"), "1 run has been going on for 11m. 1 run of this process on routes that do not hold has been going on for 13m.")
		for n := range 2 * atOnce {
			go s.post("POST /payouts", "payout-"+itoa(n), hangs, hold)
		}
		time.Sleep(12 * time.Minute)
		require.Contains(t, first(other, "/"), "41 runs have been going on for more than 10 minutes, the oldest for 23m. The store is well.")
		require.Contains(t, first(other, "/?route=POST+/orders"), "No request of POST /orders waits for a decision. The store is well.")
		end()
		synctest.Wait()
		require.Contains(t, first(s, "/"), "No request waits for a decision. The store is well.")
	})
}
