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

// A group is of records that one cause may have: they are of one route, and were held in one minute. Count is how many of them can
// be decided about together, also on other pages, and More that there may be more.
type group struct {
	Route   string
	Since   moment
	Records []shownRecord
	Count   int
	More    bool
}

// Query names the group, if it has more than one that can be decided about.
func (g group) Query() template.URL {
	if g.Count < 2 {
		return ""
	}
	return template.URL(url.Values{"route": {g.Route}, "minute": {g.Since.Machine()}}.Encode())
}

// Keys is how many it has, also of those that cannot be read.
func (g group) Keys() int { return max(g.Count, len(g.Records)) }

// A shownRecord is a record in a list.
type shownRecord struct {
	inspect.Record
	Since moment // its last change, or the beginning of its run
}

// Short is what tells a record from its neighbours.
func (s shownRecord) Short() string { return s.Record.Record[:10] + "…" }

func (v *visit) showNow(string) error {
	q := store.Query{Holding: true, States: []store.State{store.Held}, Cursor: v.r.FormValue("cursor"), Label: v.r.FormValue("route")}
	n := now{
		Now:   inspect.Now{Type: "now", Groups: []inspect.Alike{}, Records: []inspect.Record{}, Running: []inspect.Record{}},
		Route: q.Label, Later: q.Cursor != "",
	}
	var err error
	if q.Limit, err = limit(v.r.Form, pageSize, mostLooked); err != nil {
		return err
	}
	held, next, err := v.list(v.r.Context(), v.lister.List, q)
	if err != nil {
		return err
	}
	stats := v.guard.Stats()
	for _, i := range held {
		n.Records = append(n.Records, inspect.RecordOf(i))
		n.add(i, v.at(i.Age))
	}
	all, err := index{v.lister, v.now}.survey(v.r.Context(), q.Label)
	if err != nil {
		return err
	}
	n.Next = next
	n.count(&all)
	hang := ""
	if !n.Later {
		var running []idempotency.RecordInfo
		if running, hang, err = v.runs(v.r.Context(), q.Label, &all, stats.Long); err != nil {
			return err
		}
		n.Unread = !all.whole
		for _, i := range running {
			n.Running = append(n.Running, inspect.RecordOf(i))
			n.Runs = append(n.Runs, shownRecord{inspect.RecordOf(i), v.started(i)})
		}
	}
	health := v.told.healthOf(v.r.Context(), v.store, v.now())
	n.Health, n.Says = health.word, n.sum(all.oldest)+hang+" "+health.sentence(&stats)
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
	name := groupOf(since.At, i.Route, 0)
	since.At = name.minute
	shown, held := shownRecord{inspect.RecordOf(i), since}, 0
	if i.State == store.Held {
		held = 1
	}
	for g := range n.Groups {
		if n.Groups[g].Route == i.Route && n.Groups[g].Since.At.Equal(since.At) {
			n.Groups[g].Records = append(n.Groups[g].Records, shown)
			n.Groups[g].Count += held
			return
		}
	}
	n.Groups = append(n.Groups, group{Route: i.Route, Since: since, Records: []shownRecord{shown}, Count: held})
}

// count says how many are held in all, and in each group of the page. What is on the page counts in any case.
func (n *now) count(all *survey) {
	n.Held, n.More = max(all.held, len(n.Records)), !all.whole
	for i := range n.Groups {
		g := &n.Groups[i]
		g.Count, g.More = max(all.of[groupName{g.Route, g.Since.At}], g.Count), n.More
		n.Now.Groups = append(n.Now.Groups, inspect.Alike{Route: g.Route, Minute: g.Since.Machine(), Keys: g.Count})
	}
}

// sum says in a sentence what waits.
func (n *now) sum(oldest time.Duration) string {
	of, more, held := "", "", n.Held
	if n.Route != "" {
		of = " of " + n.Route
	}
	if n.More {
		more = " or more"
	}
	switch {
	case held == 0 && n.More:
		return "Nothing was found that waits for a decision, in the part of the index that was read; the next page may have something."
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
