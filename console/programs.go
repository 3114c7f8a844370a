package console

import (
	"net/http"
	"net/url"
	"strconv"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is what only programs ask for, such as idem --server: listings, counts, and decisions that are only tried.

// errForPrograms is what a browser gets.
var errForPrograms = &problem{status: http.StatusNotAcceptable, says: "This is for programs: ask for application/json."}

const (
	// mostListed is how many records a program gets at once, and mostLooked how many of which each is looked at.
	mostListed = 1000
	mostLooked = 200
	// countFor is how long a request counts before it says where the next one goes on.
	countFor = patience / 2
)

// limit returns how many records a request asks for, but not more than most, or as many as it gets otherwise.
func limit(q url.Values, otherwise, most int) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, &problem{status: http.StatusBadRequest, says: "limit must be a number, and at least 1."}
	}
	return min(n, most), nil
}

// showList lists records as the store lists them, without looking at each.
func (v *visit) showList(string) (err error) {
	if !v.wantsJSON() {
		return errForPrograms
	}
	from := v.r.URL.Query()
	q := store.Query{Holding: from.Get("holding") != "", Label: from.Get("route"), Cursor: from.Get("cursor")}
	if q.Limit, err = limit(from, mostListed, mostListed); err != nil {
		return err
	}
	for _, name := range from["state"] {
		state := store.Corrupt
		for state > 0 && state.String() != name {
			state--
		}
		if state == 0 {
			return &problem{status: http.StatusBadRequest, says: "state must be claimed, released, completed or held."}
		}
		q.States = append(q.States, state)
	}
	page, err := v.lister.List(v.r.Context(), q)
	if err != nil {
		return err
	}
	l := inspect.List{Type: "list", Records: []inspect.Listed{}, Next: page.Next}
	for _, e := range page.OfKeys().Entries {
		l.Records = append(l.Records, inspect.ListedOf(e))
	}
	return v.show(http.StatusOK, "", "", nil, l)
}

// showCounts counts all records, as many as it can until it is time to answer.
func (v *visit) showCounts(string) error {
	if !v.wantsJSON() {
		return errForPrograms
	}
	q, tally, began := store.Query{Limit: mostListed, Cursor: v.r.URL.Query().Get("cursor")}, inspect.Tally{}, v.now()
	for more := true; more; more = q.Cursor != "" && v.now().Sub(began) < countFor {
		page, err := v.lister.List(v.r.Context(), q)
		if err != nil {
			return err
		}
		for _, e := range page.OfKeys().Entries {
			tally.Entry(e)
		}
		q.Cursor = page.Next
	}
	return v.show(http.StatusOK, "", "", nil, inspect.Counts{Type: "counts", Counts: append([]inspect.Count{}, tally.Sorted()...), Next: q.Cursor})
}

// rehearse says what a decision would do, and changes nothing. Its field has another name than that of a decision, so that
// a console which does not know it refuses the form, and decides nothing.
func (v *visit) rehearse(name string, f form) error {
	if !v.wantsJSON() {
		return errForPrograms
	}
	seen, res, err := f.about(v.actor.Name)
	if err != nil {
		return err
	}
	r, err := v.ruling(name)
	if err != nil {
		return err
	}
	d, err := r.Decide(v.r.Context(), inspect.Order{Record: name, Word: f.Decision, Seen: seen, Resolution: res, DryRun: true})
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "", "", nil, d)
}
