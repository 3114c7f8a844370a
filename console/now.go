package console

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is the first screen: what waits for a decision, and what runs.

const (
	// pageSize is how many held records a page shows, and oldestRuns how many runs in flight.
	pageSize   = 50
	oldestRuns = 5
)

// A now is what the first screen shows.
type now struct {
	inspect.Now
	Groups []group
	Runs   []shownRecord
	Route  string
	Later  bool // it is not the first page
	Unread bool // the index has more than was read for Running
}

// A group is of records that one cause may have: they are of one route, and were held in one minute.
type group struct {
	Route   string
	Since   moment
	Records []shownRecord
}

// Query names those that can be decided about together, if they are more than one.
func (g group) Query() template.URL {
	held := url.Values{}
	for _, r := range g.Records {
		if r.State == "held" {
			held.Add("record", r.Record.Record)
		}
	}
	if len(held["record"]) < 2 {
		return ""
	}
	return template.URL(held.Encode())
}

// A shownRecord is a record in a list.
type shownRecord struct {
	inspect.Record
	Since moment // its last change, or the beginning of its run
}

// Short is what tells a record from its neighbours.
func (s shownRecord) Short() string { return s.Record.Record[:10] + "…" }

func (v *visit) showNow(string) error {
	q := store.Query{Holding: true, States: []store.State{store.Held}, Cursor: v.r.FormValue("cursor"), Label: v.r.FormValue("route")}
	n := now{Now: inspect.Now{Type: "now", Records: []inspect.Record{}, Running: []inspect.Record{}}, Route: q.Label, Later: q.Cursor != ""}
	var err error
	if q.Limit, err = limit(v.r.Form, pageSize, mostLooked); err != nil {
		return err
	}
	held, next, err := v.list(v.r.Context(), v.lister.List, q)
	if err != nil {
		return err
	}
	var oldest time.Duration
	stats := v.guard.Stats()
	for _, i := range held {
		oldest = max(oldest, i.Age)
		n.Records = append(n.Records, inspect.RecordOf(i))
		n.add(i, v.at(i.Age))
	}
	if n.Next = next; !n.Later {
		running, more, err := v.runs(v.r.Context(), q.Label, stats.Long)
		if err != nil {
			return err
		}
		n.Unread = more
		for _, i := range running {
			n.Running = append(n.Running, inspect.RecordOf(i))
			n.Runs = append(n.Runs, shownRecord{inspect.RecordOf(i), v.started(i)})
		}
	}
	health := v.told.healthOf(v.r.Context(), v.store, v.now())
	n.Health, n.Says = health.word, n.sum(len(held), oldest)+v.hang(stats.Long)+" "+health.sentence(&stats)
	return v.show(http.StatusOK, "now", "Now", n, n.Now)
}

// mostPages is how many pages of the store are read for one that has anything in it.
const mostPages = 10

// list returns the records of a page, by the guards of their routes. A store may have pages in which nothing fits.
func (v *visit) list(ctx context.Context, pages inspect.Pager, q store.Query) (found []idempotency.RecordInfo, next string, err error) {
	for n := 0; n == 0 || n < mostPages && len(found) == 0 && next != ""; n++ {
		if found, next, err = inspect.LookPage(ctx, pages, v.guardOf, q); err != nil {
			return nil, "", err
		}
		q.Cursor = next
	}
	return found, next, nil
}

// add puts a record into its group.
func (n *now) add(i idempotency.RecordInfo, since moment) {
	since.At = since.At.Truncate(time.Minute)
	shown := shownRecord{inspect.RecordOf(i), since}
	for g := range n.Groups {
		if n.Groups[g].Route == i.Route && n.Groups[g].Since.At.Equal(since.At) {
			n.Groups[g].Records = append(n.Groups[g].Records, shown)
			return
		}
	}
	n.Groups = append(n.Groups, group{i.Route, since, []shownRecord{shown}})
}

// sum says in a sentence what waits.
func (n *now) sum(held int, oldest time.Duration) string {
	of, more := "", ""
	if n.Route != "" {
		of = " of " + n.Route
	}
	if n.Next != "" {
		more = " or more"
	}
	switch {
	case n.Later:
		return fmt.Sprintf("%d%s further requests%s wait for a decision.", held, more, of)
	case held == 0 && n.Next != "":
		return "This page has nothing that waits for a decision; the next one may."
	case held == 0:
		return fmt.Sprintf("No request%s waits for a decision.", of)
	case held == 1 && more == "":
		return fmt.Sprintf("1 request%s has waited for a decision for %s.", of, inspect.Span(oldest))
	}
	return fmt.Sprintf("%d%s requests%s wait for a decision, the oldest for %s.", held, more, of, inspect.Span(oldest))
}

// A moment is a time, as it is shown.
type moment struct {
	At  time.Time
	Ago string
}

// Exact is for those who compare it with a log.
func (m moment) Exact() string { return m.At.UTC().Format("2006-01-02 15:04:05 UTC") }

// Minute is what those who are in one group have in common.
func (m moment) Minute() string { return m.At.UTC().Format("2006-01-02 15:04 UTC") }

// Machine is for programs that read the page.
func (m moment) Machine() string { return m.At.UTC().Format(time.RFC3339) }

// at returns the moment that was so long ago.
func (v *visit) at(age time.Duration) moment {
	return moment{v.now().Add(-age), inspect.Span(age) + " ago"}
}

// started returns when the last run of a record began.
func (v *visit) started(i idempotency.RecordInfo) moment {
	if i.Started.IsZero() {
		return v.at(i.Age)
	}
	return v.at(max(0, v.now().Sub(i.Started)))
}
