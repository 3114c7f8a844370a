package remote

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is what operators ask, as requests.

// page returns the query of a page.
func page(limit int, cursor string) url.Values {
	v := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		v.Set("cursor", cursor)
	}
	return v
}

// Held returns the next held records, and where to go on.
func (c *Client) Held(ctx context.Context, q store.Query) ([]inspect.Record, string, error) {
	v := page(q.Limit, q.Cursor)
	if q.Label != "" {
		v.Set("route", q.Label)
	}
	var now inspect.Now
	err := c.do(ctx, &call{query: v}, "now", &now)
	return now.Records, now.Next, err
}

// Running returns the next runs in flight on routes that hold, of all processes, and where to go on.
func (c *Client) Running(ctx context.Context, q store.Query) ([]inspect.Record, string, error) {
	v := page(q.Limit, q.Cursor)
	if q.Label != "" {
		v.Set("route", q.Label)
	}
	var runs inspect.Runs
	err := c.do(ctx, &call{path: "running", query: v}, "runs", &runs)
	return runs.Records, runs.Next, err
}

// Listing returns the next records of a query, as the store lists them.
func (c *Client) Listing(ctx context.Context, q store.Query) (l inspect.List, err error) {
	v := page(q.Limit, q.Cursor)
	if q.Holding {
		v.Set("holding", "1")
	}
	if q.Label != "" {
		v.Set("route", q.Label)
	}
	for _, s := range q.States {
		v.Add("state", s.String())
	}
	return l, c.do(ctx, &call{path: "list", query: v}, "list", &l)
}

// Count counts all records, part by part.
func (c *Client) Count(ctx context.Context) (inspect.Tally, error) {
	all, v := inspect.Tally{}, url.Values{}
	for more := true; more; more = v.Get("cursor") != "" {
		var part inspect.Counts
		if err := c.do(ctx, &call{path: "counts", query: v}, "counts", &part); err != nil {
			return nil, err
		}
		for _, n := range part.Counts {
			all.Add(n)
		}
		v.Set("cursor", part.Next)
	}
	return all, nil
}

// Birth tells since when the store of the service has forgotten nothing.
func (c *Client) Birth(ctx context.Context) (inspect.Birth, error) {
	var st inspect.Store
	err := c.do(ctx, &call{path: "store"}, "store", &st)
	return st.Birth, err
}

// Why tells what happened to a record, and what each decision would do.
func (c *Client) Why(ctx context.Context, record string) (t inspect.Story, err error) {
	return t, c.do(ctx, &call{path: "records/" + record, names: true}, "why", &t)
}

// Answer returns the recorded answer of a record.
func (c *Client) Answer(ctx context.Context, record string) (shown inspect.ShownAnswer, err error) {
	return shown, c.do(ctx, &call{path: "records/" + record, query: url.Values{"answer": {"1"}}, names: true}, "answer", &shown)
}

// Ask returns what the resolver of a record says. It settles nothing.
func (c *Client) Ask(ctx context.Context, record string) (w inspect.Word, err error) {
	return w, c.do(ctx, &call{path: "records/" + record, form: url.Values{"decision": {"ask"}}, names: true}, "word", &w)
}

// OfKey returns the record of a client's key. The key stands in no address and so in no log.
func (c *Client) OfKey(ctx context.Context, k idempotency.Key) (inspect.Record, error) {
	to := &call{path: "find", form: url.Values{"scope": {scope(k.Scope)}, "key": {k.Value}}, names: true}
	if k.Scope == store.Shared {
		to.form.Del("scope")
	}
	got, err := c.send(ctx, to)
	if err != nil {
		return inspect.Record{}, err
	}
	record := path.Base(got.location)
	if _, bad := inspect.Named(record); got.status != http.StatusSeeOther || bad != nil {
		return inspect.Record{}, refusal(got, to)
	}
	t, err := c.Why(ctx, record)
	return t.Record, err
}

// scope is how a form names a scope.
func scope(s string) string {
	if len(s) > 0 && s[0] == 0 {
		return `\0` + s[1:]
	}
	return s
}

// Decide makes a decision about what was seen of a record, or only says what it would do.
func (c *Client) Decide(ctx context.Context, o inspect.Order) (d inspect.Decision, _ error) {
	form := url.Values{"decision": {o.Word}, "seen": {o.Seen.String()}, "reason": {o.Resolution.Reason}}
	if o.DryRun { // a console that does not know the field refuses, and decides nothing
		form.Del("decision")
		form.Set("rehearse", o.Word)
	}
	if o.Word == "final" {
		form.Set("status", strconv.Itoa(o.Resolution.Status))
		form.Set("body", string(o.Resolution.Body))
		for name, values := range o.Resolution.Header {
			for _, value := range values {
				form.Add("header", name+": "+value)
			}
		}
	}
	for _, step := range o.Resolution.NotDone {
		form.Add("not_done", step)
	}
	to := &call{path: "records/" + o.Record, form: form, decides: !o.DryRun, seen: o.Seen.String(), names: true}
	if err := c.do(ctx, to, "decision", &d); err != nil {
		d = o.Told()
		d.Actor = to.actor
		return d, err
	}
	return d, nil
}

// Find returns the next records that have a reference or are of a tenant, and where to go on.
func (c *Client) Find(ctx context.Context, f idempotency.Finding) ([]inspect.Record, string, error) {
	form := page(f.Limit, f.Cursor)
	if f.Reference != "" {
		form.Set("reference", f.Reference)
	} else {
		form.Set("tenant", scope(f.Scope))
	}
	var found inspect.Found
	err := c.do(ctx, &call{path: "find", form: form}, "found", &found)
	return found.Records, found.Next, err
}

// Walk returns the next records of a trace or an operation ID among those that wait for somebody, and where to go on.
func (c *Client) Walk(ctx context.Context, by, text, cursor string) ([]inspect.Record, string, error) {
	form := page(50, cursor)
	form.Set(by, text)
	var found inspect.Found
	err := c.do(ctx, &call{path: "find", form: form}, "found", &found)
	return found.Records, found.Next, err
}

// Erase forgets the records of a tenant: those that are there when it begins, and that have not changed when it comes to them.
func (c *Client) Erase(ctx context.Context, what idempotency.Erasing) (inspect.Erased, error) {
	form := url.Values{"tenant": {scope(what.Scope)}}
	if what.Held {
		form.Set("also_held", "1")
	}
	if what.OlderThan > 0 {
		form.Set("older_than", what.OlderThan.String())
	}
	var done inspect.Erased
	err := c.do(ctx, &call{path: "erase", form: form}, "erased", &done)
	if err == nil && done.OlderThan != int64(what.OlderThan/time.Second) {
		return inspect.Erased{}, errors.New("the console of the service is older than --older-than: it would erase all. Nothing was erased")
	}
	if err == nil && !what.DryRun {
		form.Set("seen", done.Seen)
		form.Set("decision", "erase")
		form.Set("reason", what.Reason)
		done = inspect.Erased{}
		err = c.do(ctx, &call{path: "erase", form: form, decides: true, lasts: inspect.EraseTime}, "erased", &done)
	}
	done.Seen, done.Actor, done.Reason = "", "", ""
	return done, err
}
