package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides about all keys of a group at once, which one cause may have: those of one route that were held in one minute.

const (
	// mostAlike is how many records of a group are looked at, to be shown, and to say what each decision would do.
	mostAlike = 100
	// decideFor is for how long one form decides: not as long as servers and proxies wait for an answer.
	decideFor = 20 * time.Second
	// mostTold is how many of those that were decided are named.
	mostTold = 100
)

// groupName returns what a form or an address names.
func (f *form) groupName() (of groupName, err error) {
	if of.minute, err = time.Parse(time.RFC3339, f.Minute); err != nil || !of.minute.Equal(of.minute.Truncate(time.Minute)) {
		return of, &problem{status: http.StatusBadRequest, says: "Name a group: route, and minute like 2026-11-27T03:12:00Z."}
	}
	of.route, of.minute = f.Route, of.minute.UTC()
	return of, nil
}

// A groupPage is what the screen of a group shows.
type groupPage struct {
	inspect.Group
	Since   moment
	Options []option
	Rows    []shownRecord
	Form    form
	Notice  string
}

// InDoubt are the steps of any of the records that may have happened.
func (p *groupPage) InDoubt() (names []string) {
	for _, r := range p.Records {
		names = append(names, r.InDoubt...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (v *visit) showGroup(string) error {
	from := v.r.URL.Query()
	return v.group(http.StatusOK, form{Route: from.Get("route"), Minute: from.Get("minute")}, "")
}

// group shows the group of a form as it is now.
func (v *visit) group(status int, f form, notice string) error {
	of, err := f.groupName()
	if err != nil {
		return err
	}
	all, err := v.members(of)
	if err != nil {
		return err
	}
	p := &groupPage{Since: moment{of.minute, inspect.Span(v.now().Sub(of.minute)) + " ago"}, Form: f, Notice: notice}
	p.Group = inspect.Group{Type: "group", Alike: inspect.Alike{Route: of.route, Minute: p.Since.Machine(), Keys: len(all)}, Seen: seenOf(behind(all, ""))}
	p.Form.Seen, p.Form.After, p.Form.Minute = p.Seen, "", p.Minute
	kinds := map[string]*kind{}
	var order []*kind
	for _, m := range all[:min(len(all), mostAlike)] {
		key := idempotency.Key{Record: m.record}
		i, err := inspect.Look(v.r.Context(), v.guardOf(of.route), key)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && i.State != store.Held:
			continue // it has settled meanwhile
		case err != nil:
			return err
		}
		like := fmt.Sprint(i.Attempt, i.Steps, i.InDoubt, i.Unread)
		if kinds[like] == nil {
			r, err := v.rulingOf(of.route, key)
			if err != nil {
				return err
			}
			kinds[like] = &kind{options: v.pageOf(r).Options}
			order = append(order, kinds[like])
		}
		kinds[like].n++
		p.Records = append(p.Records, inspect.RecordOf(i))
		p.Rows = append(p.Rows, shownRecord{inspect.RecordOf(i), v.at(i.Age)})
	}
	if len(p.Rows) == 0 {
		return notFound("None of these keys is held any more.")
	}
	p.Options = together(order)
	for _, o := range p.Options {
		p.Group.Options = append(p.Group.Options, o.Option)
	}
	return v.show(status, "group", "Several keys", p, p.Group)
}

// A kind are the records of a group of which the same can be said.
type kind struct {
	options []option
	n       int
}

var groupButtons = map[string]string{
	"final":        "Give this answer to every retry of each, and run nothing any more",
	"not-executed": "Let the next request of each run from the beginning",
	"resume":       "Let the next request of each go on",
}

// together returns what each decision does to records of all kinds.
func together(kinds []*kind) []option {
	all := slices.Clone(kinds[0].options)
	for o := range all {
		all[o].Button = groupButtons[all[o].Decision]
		var says []string
		for _, k := range kinds {
			all[o].Allowed = all[o].Allowed || k.options[o].Allowed
			says = append(says, plural(k.n, "key: ", "keys: ")+k.options[o].Says)
		}
		if len(kinds) > 1 {
			all[o].Says = strings.Join(says, "\n")
		}
	}
	return all
}

// decideGroup decides about each record of a group, if the group is what was seen. One of which the decision is refused is left alone
// and named.
func (v *visit) decideGroup(string) error {
	if err := v.mayDecide(); err != nil {
		return err
	}
	f := v.form()
	of, err := f.groupName()
	if err != nil {
		return err
	}
	text, _, isSeen := strings.Cut(f.Seen, "/")
	n, err := strconv.Atoi(text)
	if !isSeen || err != nil {
		return errSeen
	}
	res, err := f.resolution(v.actor.Name)
	switch _, known := inspect.Outcomes[f.Decision]; {
	case !known:
		err = unfinished("Say final, not-executed or resume.")
	case err == nil && f.Count != itoa(n):
		err = unfinished("Confirm by their number that you decide about " + plural(n, "key", "keys") + ".")
	}
	var made decided
	if err == nil {
		v.together.mu.Lock()
		defer v.together.mu.Unlock()
		defer v.stay(decideFor + patience)()
		made, err = v.decideSeen(&f, of, res)
	}
	switch {
	case err == nil:
		return v.show(made.status, "decided", "Decided", &decidedPage{made, f}, made.Decided)
	case v.wantsJSON() || problemOf(err).status >= http.StatusInternalServerError:
		return err
	}
	return v.group(problemOf(err).status, f, problemOf(err).says)
}

// A decidedPage is what the screen of a decided group shows, with the form that goes on where the decision had to stop.
type decidedPage struct {
	decided
	Form form
}

// All is how many keys the decision was about.
func (p *decidedPage) All() int { return p.Settled + p.Left + p.Rest }

// Answer is what was recorded for each, if anything was.
func (p *decidedPage) Answer() *inspect.Answer {
	for _, d := range p.Results {
		if d.Answer != nil {
			return d.Answer
		}
	}
	return nil
}

// members returns those of a group, oldest first, if they can be counted in time.
func (v *visit) members(of groupName) ([]member, error) {
	ctx := v.r.Context()
	all, err := index{v.lister, v.now}.members(ctx, of)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, &problem{status: http.StatusServiceUnavailable, says: "More keys are held than could be counted in time. Nothing was decided: idem resolve --expect has no such limit.", err: err}
	}
	return all, err
}

// decideSeen decides about a group, or about what a decision that had to stop has left of it, if that is what the form has seen.
// A form that is sent again is the same decision.
func (v *visit) decideSeen(f *form, of groupName, res idempotency.Resolution) (decided, error) {
	all, err := v.members(of)
	if err != nil {
		return decided{}, err
	}
	all = behind(all, f.After)
	by := f.sum(v.actor, fmt.Sprintf("%q", []string{f.Route, f.Minute, f.After, f.Seen}))
	again, now := v.together.of[f.Route+f.Minute], seenOf(all)
	switch {
	case now != f.Seen && again.by == by:
		return again.result, nil
	case now != f.Seen:
		return decided{}, &problem{status: http.StatusConflict, says: "Changed meanwhile, and nothing was decided. This is what is there now.", now: now}
	}
	made, err := v.decideEach(f, of, all, res)
	if err == nil {
		v.together.add(f.Route+f.Minute, by, made)
	}
	return made, err
}

// decideEach decides about each member as it was seen, until its time is over or the store is away. One that has changed, or of
// which the decision is refused, is left alone and named.
func (v *visit) decideEach(f *form, of groupName, all []member, res idempotency.Resolution) (decided, error) {
	made := decided{status: http.StatusOK, Decided: inspect.Decided{
		Type: "decided", Decision: f.Decision, Actor: v.actor.Name, Reason: f.Reason, Results: []inspect.Decision{},
	}}
	began := v.now()
	for n, m := range all {
		if n > 0 && v.now().Sub(began) >= decideFor {
			made.stop(all, n, &problem{status: http.StatusAccepted, says: "Its time was over."})
			break
		}
		o := inspect.Order{Record: m.record, Word: f.Decision, Seen: m.seen, Resolution: res}
		d := o.Told()
		r, err := v.rulingOf(of.route, idempotency.Key{Record: m.record})
		if err == nil {
			d, err = r.Decide(v.r.Context(), o)
		}
		if err == nil {
			if made.Settled++; made.Settled <= mostTold {
				made.Results = append(made.Results, d)
			}
			continue
		}
		p := problemOf(err)
		if p.status == http.StatusServiceUnavailable {
			if n == 0 {
				return made, p
			}
			made.stop(all, n, p)
			break
		}
		d.Says, made.status = p.says, max(made.status, p.status)
		if made.Left++; made.Left <= mostListed {
			made.Results = append(made.Results, d)
		}
	}
	return made, nil
}

// stop says why a decision has not come to the member with a number and those behind it.
func (d *decided) stop(all []member, n int, why *problem) {
	d.Rest, d.Stopped, d.Seen, d.After = len(all)-n, why.says, seenOf(all[n:]), all[n-1].record
	d.status = max(d.status, why.status)
}
