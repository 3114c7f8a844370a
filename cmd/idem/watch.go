package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// A change is what idem watch has noticed.
type change struct {
	Type    string `json:"type"`
	Time    string `json:"time" jsonschema:"by the clock of this machine"`
	Change  string `json:"change" jsonschema:"held, lapsed, settled (no more held or lapsed), store-away or store-back"`
	Record  string `json:"record,omitempty"`
	Route   string `json:"route,omitempty"`
	State   string `json:"state,omitempty" jsonschema:"what the record is now; gone if there is none"`
	Attempt int    `json:"attempt,omitempty"`
	Error   string `json:"error,omitempty" jsonschema:"why the store is away"`
}

// A watcher knows what the last look has shown.
type watcher struct {
	app    *app
	desk   desk
	lapsed bool
	known  map[string]change
	away   bool
}

func (a *app) watch() *cobra.Command {
	var every time.Duration
	w := &watcher{app: a, known: map[string]change{}}
	cmd := &cobra.Command{
		Use: "watch", Args: cobra.NoArgs,
		Short: "Print a line when a key is held, lapses or is settled",
	}
	cmd.Flags().DurationVar(&every, "every", 10*time.Second, "how often to look")
	cmd.Flags().BoolVar(&w.lapsed, "lapsed", true, "look for lapsed runs, too, which are found only among all records")
	cmd.RunE = a.on(func(ctx context.Context, d desk, _ []string) error {
		if every <= 0 {
			return usage("--every is %v, and must be positive", every)
		}
		w.desk = d
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			w.look(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return cmd
}

// look prints what has changed since the last look.
func (w *watcher) look(ctx context.Context) {
	found, err := w.find(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !w.away:
		w.print(change{Change: "store-away", Error: err.Error()})
	case err == nil && w.away:
		w.print(change{Change: "store-back"})
	}
	if w.away = err != nil; w.away {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if was, ok := w.known[name]; !ok || was != found[name] {
			w.print(found[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		if _, ok := found[name]; ok {
			continue
		}
		now := change{Change: "settled", Record: name, State: "gone"}
		story, err := w.desk.Why(ctx, name)
		switch {
		case err == nil:
			now.Route, now.State, now.Attempt = story.Record.Route, story.Record.State, story.Record.Attempt
		case !errors.Is(err, store.ErrNotFound):
			found[name] = w.known[name] // the next look tells
			continue
		}
		w.print(now)
	}
	w.known = found
}

// find returns what is held or lapsed.
func (w *watcher) find(ctx context.Context) (map[string]change, error) {
	found := map[string]change{}
	add := func(r inspect.Listed) {
		if r.State == "held" || r.State == "lapsed" {
			found[r.Record] = change{Change: r.State, Record: r.Record, Route: r.Route, State: r.State, Attempt: r.Attempt}
		}
	}
	err := walk(ctx, w.desk, store.Query{Holding: true, States: []store.State{store.Held}}, add)
	if err == nil && w.lapsed {
		err = walk(ctx, w.desk, store.Query{States: []store.State{store.Claimed, store.Held}}, add)
	}
	return found, err
}

func (w *watcher) print(c change) {
	c.Type, c.Time = "change", w.app.now().UTC().Format(time.RFC3339)
	list, attempt := w.app.list(), "-"
	if c.Attempt > 0 {
		attempt = "attempt " + number(c.Attempt)
	}
	list.add(c, c.Time, c.Change, inspect.Names([]string{c.Record}), inspect.Names([]string{c.Route}), attempt, inspect.Names([]string{c.State + c.Error}))
	list.end("")
}
