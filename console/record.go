package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is the screen of one key.

// A recordPage is what the screen of a key shows.
type recordPage struct {
	inspect.Story
	// Scope and Key are the client's, if the route keeps them.
	Scope, Key string
	Since      moment
	Ends       moment
	Events     []occurrence
	Options    []option
	Forget     string
	Form       form
	Notice     string // why a decision was not made
	Answer     *inspect.ShownAnswer
}

// An occurrence is a run, a hold or a decision, as it is shown. Link leads to the trace of a run.
type occurrence struct {
	inspect.Event
	When moment
	Link string
}

// An option is a decision that can be made.
type option struct {
	inspect.Option
	Title, Button string
}

var titles = map[string]string{
	"final": "It has happened, and this is the answer", "not-executed": "Nothing has happened", "resume": "A repetition does no harm",
}

var kinds = map[answer.Kind]string{
	answer.KindKept: "answer", answer.KindNotKept: "answer that was too large to keep", answer.KindValue: "result", answer.KindError: "permanent error",
}

// ruling looks into a record, by the guard of its route.
func (v *visit) ruling(name string) (*inspect.Ruling, error) {
	key, err := inspect.Named(name)
	if err != nil {
		return nil, notFound(err.Error() + ".")
	}
	var i idempotency.RecordInfo
	if v.GuardOf != nil {
		if i, err = inspect.Look(v.r.Context(), v.guard, key); err != nil {
			return nil, err
		}
	}
	return v.rulingOf(i.Route, key)
}

// rulingOf looks into a record of a route.
func (v *visit) rulingOf(route string, key idempotency.Key) (*inspect.Ruling, error) {
	r := &inspect.Ruling{Guard: v.guardOf(route), NotDone: "tick it"}
	if v.wantsJSON() {
		r.NotDone = inspect.NotDone
	}
	switch {
	case v.GuardOf != nil && v.GuardOf(route) == nil:
		r.Unfit = "this console has no guard for the route, and does not know how it records: Options.GuardOf returns nil for it"
	case v.GuardOf == nil && inspect.SealsElsewhere(v.guard):
		r.Unfit = "a guard of this service seals what it records, and this console does not know whether that of the route does: give it Options.GuardOf"
	}
	r.TTL = inspect.TTLOf(r.Guard)
	return r, r.LookInto(v.r.Context(), v.inspector, key)
}

func (v *visit) showRecord(name string) error {
	r, err := v.ruling(name)
	if err != nil {
		return err
	}
	page := v.pageOf(r)
	if v.r.Method != http.MethodPost && v.r.FormValue("answer") != "" {
		if page.Answer, err = v.answer(r); err != nil {
			return err
		}
		return v.show(http.StatusOK, "record", "One key", page, page.Answer)
	}
	return v.show(http.StatusOK, "record", "One key", page, page.Story)
}

// pageOf returns what is shown of a record.
func (v *visit) pageOf(r *inspect.Ruling) *recordPage {
	i := r.Info
	page := &recordPage{Story: r.Story(v.r.Context()), Since: v.at(i.Age), Forget: inspect.Forgets(i)}
	if page.Record.Ends != nil {
		page.Ends = moment{v.now().Add(i.TTL), "in " + inspect.Span(i.TTL)}
	}
	if i.Key.Record == "" {
		page.Scope, page.Key = i.Key.Scope, i.Key.Value
		page.CanAsk = v.actor.Decide && i.State == store.Held && inspect.HasResolver(r.Guard, i.Route)
	}
	run, runs, decisions := event.RunInfo{}, i.Runs, i.Decisions
	for _, e := range page.Story.Events() {
		o := occurrence{Event: e}
		switch since := func(t time.Time) moment { return v.at(max(0, v.now().Sub(t))) }; {
		case e.Run != nil:
			run, runs = runs[0], runs[1:]
			o.When, o.Link = since(run.Started), v.traceURL(run.Trace)
		case e.Hold != nil:
			o.When = since(run.Held)
		default:
			o.When, decisions = since(decisions[0].Made), decisions[1:]
		}
		page.Events = append(page.Events, o)
	}
	buttons := map[string]string{
		"final":        "Give this answer to every retry, and run nothing any more",
		"not-executed": "Let the next request run from the beginning",
		"resume":       "Let the next request go on as attempt " + itoa(i.Attempt+1),
	}
	for _, d := range page.Decisions {
		o := option{inspect.Option{Decision: d.Decision, Allowed: d.Allowed, Says: strings.TrimSuffix(d.Says, ".") + "."}, titles[d.Decision], buttons[d.Decision]}
		if d.Decision == "resume" && !o.Allowed { // it may be, when the steps in doubt are ticked
			_, err := r.Of(inspect.Rehearse(v.r.Context()), "resume", i.Seen(), idempotency.Resolution{NotDone: i.InDoubt})
			if o.Allowed = err == nil; o.Allowed {
				o.Says = upper(strings.TrimPrefix(o.Says, "Refused: "))
			}
		}
		page.Options = append(page.Options, o)
	}
	page.Form.Seen = page.Record.Seen
	if i.State == store.Claimed && i.Lease > 0 {
		page.Forget = "" // it runs
	}
	return page
}

func (v *visit) traceURL(t event.TraceContext) string {
	if v.TraceURL == nil || t == (event.TraceContext{}) {
		return ""
	}
	link := v.TraceURL(t)
	if u, err := url.Parse(link); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return link
}

// mostShown is how much of a body the browser gets.
const mostShown = 64 << 10

// answer returns the recorded answer, to those who may see it.
func (v *visit) answer(r *inspect.Ruling) (*inspect.ShownAnswer, error) {
	if !v.actor.ReadAnswers {
		return nil, &problem{status: http.StatusForbidden, says: "You may not see recorded answers."}
	}
	recorded, err := inspect.ReadAnswer(v.r.Context(), r.Guard, r.Info.Record, v.actor.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, &problem{status: http.StatusNotFound, says: "There is no answer: the record is " + inspect.StateOf(r.Info) + ".", err: err}
	}
	if err != nil {
		return nil, err
	}
	a := Answer{Record: r.Info.Record, Route: r.Info.Route, Status: recorded.Status, Header: recorded.Header, Body: recorded.Body}
	if recorded.Kind == answer.KindValue || recorded.Kind == answer.KindError {
		a.Status = 0
	}
	a.Body = append([]byte{}, a.Body...) // the store's is not to be written to
	if v.Redact != nil {
		v.Redact(&a)
	}
	shown := &inspect.ShownAnswer{
		Type: "answer", Record: a.Record, Status: a.Status, Kind: kinds[recorded.Kind], Header: a.Header, Body: string(a.Body), Bytes: len(a.Body),
	}
	switch {
	case !utf8.Valid(a.Body):
		shown.Body, shown.Note = "", "The body is not text, and is not shown."
	case len(a.Body) > mostShown:
		shown.Body, shown.Note = strings.ToValidUTF8(shown.Body[:mostShown], ""), "Only the first 64 KiB are shown."
	}
	return shown, nil
}
