package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file asks as programs do, for what no screen shows.

// rehearse sends the form that only asks what a decision would do.
func (b *browser) rehearse(i idempotency.RecordInfo, word string, more ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	form := url.Values{"seen": {i.Seen().String()}, "rehearse": {word}, "reason": {"the bank has nothing"}}
	for n := 0; n < len(more); n += 2 {
		form.Add(more[n], more[n+1])
	}
	return b.do(http.MethodPost, "/records/"+i.Record, form)
}

func TestProgramsJSON(t *testing.T) {
	s := filled(t)
	b := s.as(ada).json()
	i := s.look("payout-1")
	running, end := make(chan bool), make(chan bool)
	t.Cleanup(func() { close(end) })
	go s.post("POST /transfers", "slow", func(http.ResponseWriter, *http.Request) { close(running); <-end }, hold)
	<-running
	for name, got := range map[string]*httptest.ResponseRecorder{
		"running":        b.get("/running"),
		"list-held":      b.get("/list?holding=1&state=held&route=POST+/orders"),
		"list-none":      b.get("/list?state=claimed&route=none"),
		"counts":         b.get("/counts"),
		"now-limit":      b.get("/?limit=1"),
		"rehearsal":      b.rehearse(i, "final", "status", "201", "body", `{"id":7}`, "header", "Content-Type: application/json"),
		"rehearsal-step": b.rehearse(s.look("order-77"), "not-executed"),
	} {
		requireGolden(t, name, got.Body.String())
	}
	for _, wrong := range []string{"/list?state=lapsed", "/list?limit=0", "/?limit=many", "/list?cursor=nonsense", "/running?limit=0", "/running?cursor=nonsense", "/counts?cursor=nonsense"} {
		require.Equal(t, http.StatusBadRequest, b.get(wrong).Code, wrong)
	}
	var page inspect.Now
	for i := range mostLooked {
		s.post("POST /many", itoa(i), broken, hold)
	}
	require.NoError(t, json.Unmarshal(b.get("/?limit=1000000").Body.Bytes(), &page))
	require.Len(t, page.Records, mostLooked)
	require.NotEmpty(t, page.Next)
	for _, target := range []string{"/list", "/counts", "/running"} {
		require.Equal(t, http.StatusNotAcceptable, s.as(ada).get(target).Code)
	}
	require.Equal(t, http.StatusNotAcceptable, s.as(ada).rehearse(i, "resume").Code)
}

// A rehearsal says what would happen, and nothing hears of it.
func TestRehearsalChangesNothing(t *testing.T) {
	s := filled(t)
	i, heard, logged := s.look("payout-1"), len(s.events.All()), s.log.Len()
	for _, word := range []string{"final", "not-executed", "resume", "forget"} {
		for _, actor := range []Actor{viewer, {Decide: true}} {
			require.Equal(t, http.StatusForbidden, s.as(actor).json().rehearse(i, word, "status", "200").Code)
		}
		got := s.as(ada).json().rehearse(i, word, "status", "200")
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		require.Contains(t, got.Body.String(), `"dry_run":true`)
		j := i // as if another run had been seen
		j.Attempt++
		require.Equal(t, http.StatusConflict, s.as(ada).json().rehearse(j, word, "status", "200").Code)
	}
	group := s.ofOneMinute().together(payouts, "resume")
	group.Set("rehearse", group.Get("decision"))
	group.Del("decision")
	require.Equal(t, http.StatusUnprocessableEntity, s.as(ada).json().do(http.MethodPost, "/group", group).Code)
	require.Equal(t, i.Seen(), s.look("payout-1").Seen())
	require.Len(t, s.events.All(), heard)
	require.Equal(t, logged, s.log.Len())
}

// A program gives an answer as it is to be, byte by byte.
func TestAnswerOfAProgram(t *testing.T) {
	s := serve(t)
	s.post("POST /payouts", "a", broken, hold)
	form := url.Values{
		"seen": {s.look("a").Seen().String()}, "decision": {"final"}, "reason": {"x"}, "status": {"201"}, "body": {"a\r\n\xffb"},
		"header": {"Content-Type: application/octet-stream", "X-Step: 1", "X-Step: 2"},
	}
	b := s.as(ada).json()
	wrong := url.Values{"header": {"no field"}}
	for name, values := range form {
		if name != "header" {
			wrong[name] = values
		}
	}
	require.Equal(t, http.StatusUnprocessableEntity, b.do(http.MethodPost, "/records/"+s.look("a").Record, wrong).Code)
	got := b.do(http.MethodPost, "/records/"+s.look("a").Record, form)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	answer := s.post("POST /payouts", "a", broken, hold)
	require.Equal(t, "a\r\n\xffb", answer.Body.String())
	require.Equal(t, []string{"1", "2"}, answer.Header().Values("X-Step"))
	require.Equal(t, "application/octet-stream", answer.Header().Get("Content-Type"))
}

// A narrowStore lists a record at a time.
type narrowStore struct{ *idempotency.MemoryStore }

func (s narrowStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	q.Limit = 1
	return s.MemoryStore.List(ctx, q)
}

// Counting ends in time, and goes on from there.
func TestCountsInParts(t *testing.T) {
	s := serveOn(t, narrowStore{idempotency.NewMemoryStore()})
	s.fill()
	h, err := New(s.guard, Options{Authorize: as(viewer)})
	require.NoError(t, err)
	clock := time.Unix(0, 0)
	h.(*console).now = func() time.Time { clock = clock.Add(countFor); return clock }
	b := &browser{t: t, h: h, accept: "application/json"}
	all, parts := inspect.Tally{}, 0
	for cursor, more := "", true; more; more = cursor != "" {
		var part inspect.Counts
		require.NoError(t, json.Unmarshal(b.get("/counts?cursor="+url.QueryEscape(cursor)).Body.Bytes(), &part))
		for _, c := range part.Counts {
			all.Add(c)
		}
		cursor = part.Next
		parts++
	}
	require.GreaterOrEqual(t, parts, 6, "of one record each")
	counted := map[string]int{}
	for _, c := range all.Sorted() {
		counted[c.Route+" "+c.State] = c.Records
	}
	require.Equal(t, map[string]int{
		"POST /payouts held": 2, "POST /orders held": 1, "POST /charges held": 1, "POST /orders completed": 1, "POST /orders released": 1,
	}, counted)
}

// Every answer says in which form programs speak, also to those who are not let in.
func TestFormOfPrograms(t *testing.T) {
	s := serve(t)
	stranger := s.browser(Options{Authorize: func(*http.Request) (Actor, error) { return Actor{}, idempotency.ErrUnauthenticated }})
	for _, got := range []*httptest.ResponseRecorder{s.as(ada).json().get("/"), s.as(ada).get("/nothing"), stranger.json().get("/list")} {
		require.Equal(t, "1", got.Header().Get("Idempotency-Console"))
	}
}
