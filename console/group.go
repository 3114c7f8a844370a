package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file decides about several records at once, which one cause may have.

// mostDecided is how many records one form decides about.
const mostDecided = 100

func (f *form) fits() error {
	if n := len(f.Group); n == 0 || n > mostDecided {
		return &problem{status: http.StatusBadRequest, says: "Name from 1 to 100 records."}
	}
	return nil
}

// A groupPage is what the screen of a group shows.
type groupPage struct {
	inspect.Group
	Options []option
	Rows    []shownRecord
	Form    form
	Notice  string
}

// Route is that of all records, if they have one.
func (p *groupPage) Route() string {
	if slices.ContainsFunc(p.Records, func(r inspect.Record) bool { return r.Route != p.Records[0].Route }) {
		return ""
	}
	return p.Records[0].Route
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
	return v.group(http.StatusOK, form{Group: v.r.URL.Query()["record"]}, "")
}

// group shows the records of a form that are held. What was seen of them stays what it was.
func (v *visit) group(status int, f form, notice string) error {
	if err := f.fits(); err != nil {
		return err
	}
	p := &groupPage{Group: inspect.Group{Type: "group"}, Form: f, Notice: notice}
	p.Form.Group = nil
	kinds := map[string]*kind{}
	var order []*kind
	for _, member := range f.Group {
		name, seen, _ := strings.Cut(member, " ")
		key, err := inspect.Named(name)
		if err != nil {
			return notFound(err.Error() + ".")
		}
		i, err := inspect.Look(v.r.Context(), v.guard, key)
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && i.State != store.Held:
			continue // it has settled meanwhile
		case err != nil:
			return err
		}
		of := fmt.Sprint(i.Route, i.Attempt, i.Steps, i.InDoubt)
		if kinds[of] == nil {
			r, err := v.ruling(name)
			if err != nil {
				return err
			}
			kinds[of] = &kind{options: v.pageOf(r).Options}
			order = append(order, kinds[of])
		}
		kinds[of].n++
		if seen == "" {
			seen = i.Seen().String()
		}
		p.Form.Group = append(p.Form.Group, name+" "+seen)
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

// A member of a group is a record, and what was seen of it.
type member struct {
	record string
	seen   store.Seen
}

// members are those of a form.
func (f *form) members() (all []member, err error) {
	if err := f.fits(); err != nil {
		return nil, err
	}
	for _, text := range f.Group {
		name, seen, _ := strings.Cut(text, " ")
		m := member{record: name}
		if _, err := inspect.Named(name); err != nil {
			return nil, notFound(err.Error() + ".")
		}
		if m.seen.UnmarshalText([]byte(seen)) != nil {
			return nil, errSeen
		}
		if !slices.ContainsFunc(all, func(other member) bool { return other.record == name }) {
			all = append(all, m)
		}
	}
	return all, nil
}

// decideGroup decides about each record of a form as it was seen. One that has changed, or of which the decision is
// refused, is left alone and named.
func (v *visit) decideGroup(string) error {
	if err := v.mayDecide(); err != nil {
		return err
	}
	f := v.form()
	members, err := f.members()
	if err != nil {
		return err
	}
	res, err := f.resolution(v.actor.Name)
	switch _, known := inspect.Outcomes[f.Decision]; {
	case !known:
		err = unfinished("Say final, not-executed or resume.")
	case err == nil && f.Count != itoa(len(members)):
		err = unfinished("Confirm by their number that you decide about " + plural(len(members), "key", "keys") + ".")
	}
	switch {
	case err != nil && v.wantsJSON():
		return err
	case err != nil:
		return v.group(http.StatusUnprocessableEntity, f, err.Error())
	}
	defer v.stay(patience)()
	done, status := &inspect.Decided{Type: "decided", Decision: f.Decision, Actor: v.actor.Name, Reason: f.Reason}, http.StatusOK
	for _, m := range members {
		d, err := v.settle(m.record, &f, m.seen, res)
		if err == nil {
			done.Settled++
		} else {
			p := problemOf(err)
			d.Says, status = p.says, max(status, p.status)
			done.Left++
		}
		done.Results = append(done.Results, d)
	}
	return v.show(status, "decided", "Decided", done, done)
}
