package console

import (
	"context"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides about several records at once.

// noon is when all is held, so that all is of one minute.
var noon = time.Date(2026, 11, 27, 12, 0, 30, 0, time.UTC)

// ofOneMinute is a console of ada for which all records of a test are of one minute.
func (s *service) ofOneMinute() *browser {
	b := s.as(ada)
	b.h.(*console).now = func() time.Time { return noon }
	return b
}

const payouts = "/group?minute=2026-11-27T12%3A00%3A00Z&route=POST+%2Fpayouts"

// together is the form of a decision about a group as it is now, with pairs of further fields.
func (b *browser) together(target, word string, more ...string) url.Values {
	b.t.Helper()
	var g inspect.Group
	require.NoError(b.t, json.Unmarshal(b.json().get(target).Body.Bytes(), &g))
	form := url.Values{"decision": {word}, "reason": {"the bank has nothing"}, "count": {itoa(g.Keys)}, "route": {g.Route}, "minute": {g.Minute}, "seen": {g.Seen}}
	for n := 0; n < len(more); n += 2 {
		form.Set(more[n], more[n+1])
	}
	return form
}

var (
	groupLink   = regexp.MustCompile(`href="\.(/group\?[^"]+)"`)
	hiddenField = regexp.MustCompile(`type="hidden" name="([^"]+)" value="([^"]*)"`)
)

// filledIn are the fields that the form of a page has filled in.
func filledIn(page string) url.Values {
	form := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Add(field[1], html.UnescapeString(field[2]))
	}
	return form
}

// The first screen leads to the screen of a group, whose form is about what was shown.
func TestGroupIsDecidedTogether(t *testing.T) {
	s := filled(t)
	b := s.ofOneMinute()
	link := groupLink.FindAllStringSubmatch(b.get("/").Body.String(), -1)
	require.Len(t, link, 1, "only what is of one route and one minute is a group")
	require.Empty(t, groupLink.FindString(s.as(viewer).get("/").Body.String()))
	require.Equal(t, payouts, html.UnescapeString(link[0][1]))
	page := b.get(payouts).Body.String()
	for _, part := range []string{"POST /payouts", "2 keys held", "Every retry gets the answer that you give", "Let the next request of each go on"} {
		require.Contains(t, page, part)
	}
	form := filledIn(page)
	for name, value := range map[string]string{"decision": "final", "status": "201", "body": "{}", "reason": "both are at the bank", "count": " 2 "} {
		form.Set(name, value)
	}
	for range 2 { // a form that is sent twice is one decision
		got := b.do(http.MethodPost, payouts, form)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		require.Contains(t, got.Body.String(), "2 keys were decided.")
		require.Contains(t, got.Body.String(), "status 201")
	}
	for _, key := range []string{"payout-1", "payout-2"} {
		require.Equal(t, http.StatusCreated, s.post("POST /payouts", key, broken, hold).Code)
	}
	require.Equal(t, 2, s.events.Count(event.Resolved))
	require.Equal(t, 2, strings.Count(s.log.String(), `actor=ada reason="both are at the bank"`), "each decision is a line of the log")
	require.Equal(t, http.StatusNotFound, b.get(payouts).Code, "none is held any more")
}

func TestGroupJSON(t *testing.T) {
	s := filled(t)
	b := s.ofOneMinute()
	requireGolden(t, "group", b.json().get(payouts).Body.String())
	requireGolden(t, "refused-count", b.json().do(http.MethodPost, "/group", b.together(payouts, "resume", "count", "1")).Body.String())
	requireGolden(t, "changed-group", b.json().do(http.MethodPost, "/group", b.together(payouts, "resume", "seen", "2/0123456789abcdef")).Body.String())
	requireGolden(t, "decided", b.json().do(http.MethodPost, "/group", b.together(payouts, "resume")).Body.String())
}

// A group is counted and decided as a whole, however many of its keys a page shows.
func TestGroupIsLargerThanAPage(t *testing.T) {
	s := serve(t)
	const keys = 260
	for n := range keys {
		s.post("POST /payouts", itoa(n), broken, hold)
	}
	s.post("POST /orders", "order", broken, hold)
	b := s.ofOneMinute()
	page := b.get("/").Body.String()
	for _, part := range []string{"261 requests wait for a decision", "260 keys, held", "50 on this page", "Decide about all 260 of them"} {
		require.Contains(t, page, part)
	}
	require.Equal(t, payouts, html.UnescapeString(groupLink.FindStringSubmatch(page)[1]))
	var now inspect.Now
	require.NoError(t, json.Unmarshal(b.json().get("/?limit=1").Body.Bytes(), &now))
	require.Equal(t, 261, now.Held)
	require.Equal(t, []inspect.Alike{{Route: "POST /payouts", Minute: "2026-11-27T12:00:00Z", Keys: keys}}, now.Groups)
	require.Contains(t, b.get("/?cursor="+url.QueryEscape(now.Next)).Body.String(), "260 keys, held", "the count is of all pages")
	require.Contains(t, b.get("/?route=POST+/orders").Body.String(), "1 request of POST /orders has waited")

	page = b.get(payouts).Body.String()
	require.Contains(t, page, "260 keys held")
	require.Contains(t, page, "The oldest 100 are shown")
	var done inspect.Decided
	got := b.json().do(http.MethodPost, "/group", b.together(payouts, "not-executed"))
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &done))
	require.Equal(t, keys, done.Settled)
	require.Len(t, done.Results, mostTold)
	require.Equal(t, keys, s.events.Count(event.Resolved))
	require.Equal(t, store.Held, s.look("order").State)
}

// A decision that takes too long says how many are left, and its form goes on with those, whatever was left alone before.
func TestGroupThatTakesLong(t *testing.T) {
	s := serve(t)
	const keys = 50
	for n := range keys {
		h := broken
		if n%5 == 0 {
			h = afterStep("ledger") // not-executed is refused
		}
		s.post("POST /payouts", itoa(n), h, hold)
	}
	b := s.ofOneMinute()
	form := b.together(payouts, "not-executed", "not_done", "x", "body", "a\nb")
	looks := 0
	b.h.(*console).now = func() time.Time { looks++; return noon.Add(time.Duration(looks-20) * time.Second) } // each look takes a second
	settled, left := 0, 0
	for n := 0; ; n++ {
		looks = 0
		got := b.do(http.MethodPost, payouts, form)
		page := got.Body.String()
		var made decided
		for _, one := range b.h.(*console).together.of {
			made = one.result
		}
		settled, left = settled+made.Settled, left+made.Left
		require.Equal(t, keys, settled+left+made.Rest)
		require.Equal(t, settled, s.events.Count(event.Resolved))
		if made.Rest == 0 {
			require.Positive(t, n)
			break
		}
		require.Contains(t, page, "Then it stopped: Its time was over.")
		require.Contains(t, page, "Go on with the other "+itoa(made.Rest))
		again := b.do(http.MethodPost, payouts, form)
		require.Equal(t, page, again.Body.String(), "what is sent twice goes on from where it stopped once")
		form = filledIn(page)
		require.Equal(t, []string{"the bank has nothing", "a\nb", "x"}, []string{form.Get("reason"), form.Get("body"), form.Get("not_done")})
		form.Set("decision", "not-executed")
	}
	require.Equal(t, keys/5, left)
	require.Equal(t, keys-keys/5, settled)
}

// What changes while it is looked at, in number or not, is looked at again, and nothing is decided.
func TestGroupHasChanged(t *testing.T) {
	for name, change := range map[string]func(s *service, i idempotency.RecordInfo){
		"another is held": func(s *service, _ idempotency.RecordInfo) { s.post("POST /payouts", "payout-3", broken, hold) },
		"one is settled": func(s *service, i idempotency.RecordInfo) {
			require.NoError(s.t, s.guard.Resolve(s.t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
		},
		"one has run again": func(s *service, i idempotency.RecordInfo) {
			require.NoError(s.t, s.guard.Resolve(s.t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
			s.post("POST /payouts", "payout-1", broken, hold)
		},
	} {
		s := filled(t)
		b := s.ofOneMinute()
		form := b.together(payouts, "resume")
		change(s, s.look("payout-1"))
		decided := s.events.Count(event.Resolved)
		got := b.do(http.MethodPost, payouts, form)
		require.Equal(t, http.StatusConflict, got.Code, name)
		require.Contains(t, got.Body.String(), "Changed meanwhile, and nothing was decided.", name)
		require.Contains(t, got.Body.String(), "the bank has nothing", "the reason stays in the form")
		require.Equal(t, decided, s.events.Count(event.Resolved), name)
		next := filledIn(got.Body.String())
		require.NotEqual(t, form.Get("seen"), next.Get("seen"), name)
		for field, value := range map[string]string{"decision": "resume", "reason": "looked again", "count": strings.Split(next.Get("seen"), "/")[0]} {
			next.Set(field, value)
		}
		require.Equal(t, http.StatusOK, b.do(http.MethodPost, payouts, next).Code, name)
	}
}

// A slow store lists what is held, and then something happens.
type slowStore struct {
	*idempotency.MemoryStore
	listed func()
}

func (s *slowStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := s.MemoryStore.List(ctx, q)
	if s.listed != nil {
		s.listed()
	}
	return page, err
}

// What cannot be decided, or changes at the last moment, is left alone and named, and the others are decided.
func TestGroupLeavesSomeAlone(t *testing.T) {
	st := &slowStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st)
	s.fill()
	s.post("POST /payouts", "payout-3", afterStep("ledger"), hold)
	b := s.ofOneMinute()
	form := b.together(payouts, "not-executed")
	i := s.look("payout-2")
	st.listed = func() {
		_ = s.guard.Resolve(t.Context(), idempotency.Key{Record: i.Record}, i.Seen(), idempotency.Resolution{Outcome: idempotency.Resume})
		st.listed = nil
		s.post("POST /payouts", "payout-2", broken, hold)
	}
	got := b.json().do(http.MethodPost, "/group", form)
	require.Equal(t, http.StatusUnprocessableEntity, got.Code, "the worst of them")
	var done inspect.Decided
	require.NoError(t, json.Unmarshal(got.Body.Bytes(), &done))
	require.Equal(t, []int{1, 2, 0}, []int{done.Settled, done.Left, done.Rest})
	says := map[string]string{}
	for _, d := range done.Results {
		require.Equal(t, "ada", d.Actor)
		if !d.Allowed {
			says[d.Record] = d.Says
		}
	}
	require.Contains(t, says[i.Record], "Changed meanwhile: you saw held after attempt 1, and now the record is held after attempt 2")
	require.Contains(t, says[s.look("payout-3").Record], "has a recorded result")
	for key, state := range map[string]store.State{"payout-1": store.Released, "payout-2": store.Held, "payout-3": store.Held, "order-77": store.Held} {
		require.Equal(t, state, s.look(key).State, key)
	}
	require.Contains(t, b.get(payouts).Body.String(), "1 key: ", "what each decision does is said of each kind")

	charges := strings.Replace(payouts, "payouts", "charges", 1)
	got = b.do(http.MethodPost, charges, b.together(charges, "resume"))
	require.Contains(t, got.Body.String(), "0 keys were decided, and 1 was left as it is.")
	got = b.do(http.MethodPost, charges, b.together(charges, "resume", "not_done", "charge"))
	require.Equal(t, http.StatusOK, got.Code, "it is said that the step has not happened")
}

// A form that is refused changes nothing. The page says why, and keeps what was filled in.
func TestGroupRefusals(t *testing.T) {
	s := filled(t)
	b := s.ofOneMinute()
	for name, c := range map[string]struct {
		form   url.Values
		status int
		says   string
	}{
		"no reason":       {b.together(payouts, "resume", "reason", " "), 422, "Say how you found it out"},
		"no count":        {b.together(payouts, "resume", "count", ""), 422, "Confirm by their number that you decide about 2 keys."},
		"another count":   {b.together(payouts, "resume", "count", "3"), 422, "the bank has nothing"},
		"no answer":       {b.together(payouts, "final"), 422, "Give the answer that retries get"},
		"no decision":     {b.together(payouts, ""), 422, "Say final, not-executed or resume."},
		"forget":          {b.together(payouts, "forget"), 422, "Say final, not-executed or resume."},
		"ask":             {b.together(payouts, "ask"), 422, "Say final, not-executed or resume."},
		"nothing seen":    {b.together(payouts, "resume", "seen", ""), 400, "does not say what was seen"},
		"no number seen":  {b.together(payouts, "resume", "seen", "x/0"), 400, "does not say what was seen"},
		"no minute":       {b.together(payouts, "resume", "minute", ""), 400, "Name a group"},
		"within a minute": {b.together(payouts, "resume", "minute", "2026-11-27T12:00:30Z"), 400, "Name a group"},
		"another minute":  {b.together(payouts, "resume", "minute", "2026-11-27T12:01:00Z"), 404, "None of these keys is held any more."},
		"no route":        {b.together(payouts, "resume", "route", ""), 404, "None of these keys is held any more."},
		"another route":   {b.together(payouts, "resume", "route", "POST /none"), 404, "None of these keys is held any more."},
	} {
		got := b.do(http.MethodPost, "/group", c.form)
		require.Equal(t, c.status, got.Code, "%s: %s", name, got.Body)
		require.Contains(t, html.UnescapeString(got.Body.String()), c.says, name)
		want := c.status
		if want == 404 {
			want = 409 // a program is not shown what is there
		}
		require.Equal(t, want, b.json().do(http.MethodPost, "/group", c.form).Code, name)
		for _, actor := range []Actor{viewer, {Decide: true}} {
			require.Equal(t, http.StatusForbidden, s.as(actor).do(http.MethodPost, "/group", c.form).Code, name)
		}
	}
	for _, target := range []string{"/group", "/group?route=x", "/group?minute=x", payouts + "1"} {
		require.NotEqual(t, http.StatusOK, b.get(target).Code)
	}
	looks := s.as(viewer)
	looks.h.(*console).now = func() time.Time { return noon }
	require.NotContains(t, looks.get(payouts).Body.String(), "<form method")
}

// A store that is away, or goes away, is the answer.
func TestGroupWithoutAStore(t *testing.T) {
	st := &downStore{MemoryStore: idempotency.NewMemoryStore()}
	s := serveOn(t, st)
	s.fill()
	b := s.ofOneMinute()
	form := b.together(payouts, "resume")
	st.down = true
	for _, got := range []*httptest.ResponseRecorder{b.get(payouts), b.do(http.MethodPost, "/group", form)} {
		require.Equal(t, http.StatusServiceUnavailable, got.Code)
		require.Contains(t, got.Body.String(), "The store does not answer: Connection refused")
	}
}

// A failing store takes so many decisions, and is away then.
type failingStore struct {
	*idempotency.MemoryStore
	takes int
}

func (s *failingStore) Resolve(ctx context.Context, key string, seen store.Seen, to store.Settlement) error {
	if s.takes--; s.takes < 0 {
		return errDown
	}
	return s.MemoryStore.Resolve(ctx, key, seen, to)
}

// A store that goes away in the middle leaves a rest, with which the form goes on when it is back.
func TestGroupWhoseStoreGoesAway(t *testing.T) {
	st := &failingStore{MemoryStore: idempotency.NewMemoryStore(), takes: 1}
	s := serveOn(t, st)
	s.fill()
	b := s.ofOneMinute()
	got := b.do(http.MethodPost, payouts, b.together(payouts, "resume"))
	require.Equal(t, http.StatusServiceUnavailable, got.Code)
	require.Contains(t, got.Body.String(), "1 of 2 decided")
	require.Contains(t, got.Body.String(), "Then it stopped: The store does not answer")
	form := filledIn(got.Body.String())
	form.Set("decision", "resume")
	require.Equal(t, http.StatusServiceUnavailable, b.do(http.MethodPost, payouts, form).Code)
	st.takes = 1
	got = b.do(http.MethodPost, payouts, form)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Contains(t, got.Body.String(), "1 key was decided.")
	require.Equal(t, 2, s.events.Count(event.Resolved))
}

// An index that does not end in time is told, and nothing is decided.
func TestGroupThatCannotBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := filled(t)
		b := s.ofOneMinute()
		form := b.together(payouts, "resume")
		b.h.(*console).lister = endlessList{}
		for _, got := range []*httptest.ResponseRecorder{b.get(payouts), b.do(http.MethodPost, payouts, form)} {
			require.Equal(t, http.StatusServiceUnavailable, got.Code)
			require.Contains(t, got.Body.String(), "More keys are held than could be counted in time. Nothing was decided")
		}
		require.Zero(t, s.events.Count(event.Resolved))
	})
}

// An endlessList has a page behind each, and takes a second for it.
type endlessList struct{}

func (endlessList) List(ctx context.Context, _ store.Query) (store.Page, error) {
	time.Sleep(time.Second) // of the bubble
	return store.Page{Next: "more"}, ctx.Err()
}
