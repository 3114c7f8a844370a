package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides about several records at once.

// together is the form of a decision about keys as they are now, with pairs of further fields.
func (s *service) together(word string, keys []string, more ...string) url.Values {
	form := url.Values{"decision": {word}, "reason": {"the bank has nothing"}, "count": {itoa(len(keys))}}
	for _, key := range keys {
		i := s.look(key)
		form.Add("group", i.Record+" "+i.Seen().String())
	}
	for n := 0; n < len(more); n += 2 {
		form.Set(more[n], more[n+1])
	}
	return form
}

var groupLink = regexp.MustCompile(`href="\.(/group\?[^"]+)"`)

// The first screen leads to the screen of a group, whose form is about what was shown.
func TestGroupIsDecidedTogether(t *testing.T) {
	s := filled(t)
	b := s.as(ada)
	link := groupLink.FindAllStringSubmatch(b.get("/").Body.String(), -1)
	require.Len(t, link, 1, "only what is of one route and one minute is a group")
	require.Empty(t, groupLink.FindString(s.as(viewer).get("/").Body.String()))
	target := html.UnescapeString(link[0][1])
	page := b.get(target).Body.String()
	for _, part := range []string{"POST /payouts", "2 keys held", "Every retry gets the answer that you give", "Let the next request of each go on"} {
		require.Contains(t, page, part)
	}
	form := url.Values{"decision": {"final"}, "status": {"201"}, "body": {"{}"}, "reason": {"both are at the bank"}, "count": {" 2 "}}
	for _, field := range regexp.MustCompile(`name="group" value="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		form.Add("group", field[1])
	}
	for range 2 { // a form that is sent twice is one decision
		got := b.do(http.MethodPost, target, form)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		require.Contains(t, got.Body.String(), "2 keys were decided.")
	}
	for _, key := range []string{"payout-1", "payout-2"} {
		require.Equal(t, http.StatusCreated, s.post("POST /payouts", key, broken, hold).Code)
	}
	require.Equal(t, 2, s.events.Count(event.Resolved))
	require.Equal(t, 2, strings.Count(s.log.String(), `actor=ada reason="both are at the bank"`), "each decision is a line of the log")
	require.Equal(t, http.StatusNotFound, b.get(target).Code, "none is held any more")
}

func TestGroupJSON(t *testing.T) {
	s := filled(t)
	b := s.as(ada).json()
	query := url.Values{}
	for _, key := range []string{"payout-1", "charge-5", "order-78"} { // which is not held
		query.Add("record", s.look(key).Record)
	}
	requireGolden(t, "group", b.get("/group?"+query.Encode()).Body.String())
	requireGolden(t, "refused-count", b.do(http.MethodPost, "/group", s.together("resume", []string{"payout-1", "payout-2"}, "count", "1")).Body.String())
	requireGolden(t, "decided", b.do(http.MethodPost, "/group", s.together("resume", []string{"payout-1", "charge-5"})).Body.String())
}

// What cannot be decided is left alone and named, and the others are decided.
func TestGroupLeavesSomeAlone(t *testing.T) {
	s := filled(t)
	form := s.together("resume", []string{"payout-1", "payout-2", "order-77", "charge-5", "order-78"})
	i := s.look("payout-2")
	require.NoError(t, s.guard.Resolve(t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
	s.post("POST /payouts", "payout-2", broken, hold)
	got := s.as(ada).json().do(http.MethodPost, "/group", form)
	require.Equal(t, http.StatusUnprocessableEntity, got.Code, "the worst of them")
	var done inspect.Decided
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &done))
	require.Equal(t, 2, done.Settled)
	require.Equal(t, 3, done.Left)
	says := map[string]string{}
	for _, d := range done.Results {
		require.Equal(t, "ada", d.Actor)
		if !d.Allowed {
			says[d.Record] = d.Says
		}
	}
	require.Contains(t, says[i.Record], "Changed meanwhile: you saw held after attempt 1, and now the record is held after attempt 2")
	require.Contains(t, says[s.look("charge-5").Record], "may have happened")
	require.Contains(t, says[s.look("order-78").Record], "only what is held")
	for key, state := range map[string]store.State{
		"payout-1": store.Released, "payout-2": store.Held, "order-77": store.Released, "charge-5": store.Held, "order-78": store.Completed,
	} {
		require.Equal(t, state, s.look(key).State, key)
	}
	got = s.as(ada).do(http.MethodPost, "/group", s.together("resume", []string{"charge-5"}, "not_done", "charge"))
	require.Equal(t, http.StatusOK, got.Code, "it is said that the step has not happened")

	form = s.together("final", []string{"payout-2"}, "status", "201")
	require.NoError(t, s.guard.Forget(t.Context(), idempotency.Key{Record: i.Record}, s.look("payout-2").Seen(), idempotency.Decision{}))
	got = s.as(ada).do(http.MethodPost, "/group", form)
	require.Equal(t, http.StatusNotFound, got.Code)
	require.Contains(t, got.Body.String(), "0 keys were decided, and 1 was left as it is.")
}

// A form that is refused changes nothing. The page says why, keeps what was filled in, and is about what was seen.
func TestGroupRefusals(t *testing.T) {
	s := filled(t)
	both := []string{"payout-1", "payout-2"}
	many := s.together("resume", both)
	for n := range mostDecided {
		many.Add("group", strings.Repeat("A", 40)+itoa(100+n)+" held/1/00000000000000000000000000000001")
	}
	many.Set("count", itoa(len(many["group"])))
	for name, c := range map[string]struct {
		form   url.Values
		status int
		says   string
	}{
		"no reason":      {s.together("resume", both, "reason", " "), 422, "Say how you found it out"},
		"no count":       {s.together("resume", both, "count", ""), 422, "Confirm by their number that you decide about 2 keys."},
		"another count":  {s.together("resume", both, "count", "3"), 422, "the bank has nothing"},
		"one named thus": {s.together("resume", []string{"payout-1", "payout-1"}), 422, "about 1 key."},
		"no answer":      {s.together("final", both), 422, "Give the answer that retries get"},
		"no decision":    {s.together("", both), 422, "Say final, not-executed or resume."},
		"forget":         {s.together("forget", both), 422, "Say final, not-executed or resume."},
		"ask":            {s.together("ask", both), 422, "Say final, not-executed or resume."},
		"nothing":        {s.together("resume", nil), 400, "from 1 to 100 records"},
		"too many":       {many, 400, "from 1 to 100 records"},
		"nothing seen":   {s.together("resume", both, "group", s.look("payout-1").Record), 400, "does not say what was seen"},
		"no record":      {s.together("resume", both, "group", "x "+s.look("payout-1").Seen().String()), 404, "is not the name of a record"},
	} {
		got := s.as(ada).do(http.MethodPost, "/group", c.form)
		require.Equal(t, c.status, got.Code, "%s: %s", name, got.Body)
		require.Contains(t, html.UnescapeString(got.Body.String()), c.says, name)
		require.Equal(t, c.status, s.as(ada).json().do(http.MethodPost, "/group", c.form).Code, name)
		require.Equal(t, c.status == 422, strings.Contains(got.Body.String(), `value="`+s.together("resume", both)["group"][0]+`"`), name)
		for _, actor := range []Actor{viewer, {Decide: true}} {
			require.Equal(t, http.StatusForbidden, s.as(actor).do(http.MethodPost, "/group", c.form).Code, name)
		}
	}
	require.Zero(t, s.events.Count(event.Resolved))

	form := s.together("resume", both, "count", "")
	i := s.look("payout-1")
	require.NoError(t, s.guard.Resolve(t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
	s.post("POST /payouts", "payout-1", broken, hold)
	got := s.as(ada).do(http.MethodPost, "/group", form).Body.String()
	require.Contains(t, got, i.Seen().String(), "what changes while the form is mended is left alone, too")
	require.NotContains(t, got, s.look("payout-1").Seen().String())
	require.Contains(t, got, "1 key: ", "what each decision does is said of each kind")
	for _, target := range []string{"/group", "/group?record=x", "/group?record=" + strings.Repeat("A", 43)} {
		require.NotEqual(t, http.StatusOK, s.as(ada).get(target).Code)
	}
	require.NotContains(t, s.as(viewer).get("/group?record="+i.Record).Body.String(), "<form method")
}

// A store that is away, or goes away, is the answer.
func TestGroupWithoutAStore(t *testing.T) {
	st := &downStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st)
	s.fill()
	form := s.together("resume", []string{"payout-1", "payout-2"})
	target := "/group?record=" + s.look("payout-1").Record
	st.down = true
	for _, got := range []*httptest.ResponseRecorder{s.as(ada).get(target), s.as(ada).do(http.MethodPost, "/group", form)} {
		require.Equal(t, http.StatusServiceUnavailable, got.Code)
		require.Contains(t, got.Body.String(), "The store does not answer: Connection refused")
	}
}
