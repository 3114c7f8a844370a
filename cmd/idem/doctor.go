package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// The results of a check.
const (
	ok   = "ok"
	warn = "warn"
	fail = "fail"
)

// A check is what the doctor says about one thing.
type check struct {
	Type   string `json:"type"`
	Check  string `json:"check"`
	Result string `json:"result" jsonschema:"ok, warn or fail"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// A doctor looks at a store for what makes it forget, refuse or lag.
type doctor struct {
	app     *app
	source  *source
	list    *listing
	failed  int
	timeout time.Duration
	// longest is how long a run may last.
	longest time.Duration
	// replicas is how many the service waits for in Redis, and account whose rights are looked at, in Redis or PostgreSQL.
	replicas int
	account  string
}

func (a *app) doctor() *cobra.Command {
	d := &doctor{app: a}
	cmd := &cobra.Command{
		Use: "doctor", Args: cobra.NoArgs,
		Short: "Check the store for what would make it forget, refuse or lag",
	}
	cmd.Flags().DurationVar(&d.timeout, "timeout", 500*time.Millisecond, "how long the service waits for a reply, as ReadTimeout of its client says")
	cmd.Flags().DurationVar(&d.longest, "longest-run", 10*time.Minute, "how long a run may last on routes that hold, as the threshold of the alert IdempotencyRunHangs")
	cmd.Flags().IntVar(&d.replicas, "replicas", 0, "Redis: how many replicas the service waits for (WithReplicas)")
	cmd.Flags().StringVar(&d.account, "account", "", "the account of the service in Redis, or its role in PostgreSQL; without it, that of this command")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		t, err := a.target.choose(a.env)
		if err == nil && t.server != "" {
			err = usage("doctor looks at the store itself, and a service does not show it: name the store, by --redis, --postgres or --sqlite")
		}
		if err != nil {
			return err
		}
		s, err := t.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer s.close()
		d.source, d.list = s, a.list("CHECK", "RESULT", "FOUND", "REMEDY")
		return d.examine(cmd.Context())
	}
	return cmd
}

// examine makes all checks. It returns an error if the store cannot be asked at all, or is not well.
func (d *doctor) examine(ctx context.Context) error {
	var err error
	switch {
	case d.source.redis != nil:
		err = d.examineRedis(ctx)
	case d.source.pool != nil:
		err = d.examinePostgres(ctx)
	default:
		err = d.examineSQLite(ctx)
	}
	if err == nil && d.source.records != nil {
		err = errors.Join(d.latency(ctx), d.waiting(ctx), d.runs(ctx), d.birth(ctx))
	}
	d.list.end("")
	switch {
	case err != nil:
		return err
	case d.failed > 0:
		return &coded{inspect.ExitUnhealthy, fmt.Errorf("the store is not well: %d of its checks failed", d.failed)}
	}
	return nil
}

// say tells the result of a check, and what to do about it if it is not well.
func (d *doctor) say(name, result, found, remedy string) {
	if result == ok {
		remedy = ""
	}
	if result == fail {
		d.failed++
	}
	d.list.add(check{"check", name, result, found, remedy}, name, result, found, inspect.Names([]string{remedy}))
}

// worse returns the result of a figure that must stay below two bounds.
func worse[N int | int64 | float64 | time.Duration](figure, warnFrom, failFrom N) string {
	switch {
	case figure >= failFrom:
		return fail
	case figure >= warnFrom:
		return warn
	}
	return ok
}

// clock compares the clock of the server, asked between two moments of this machine, with that of this machine.
func (d *doctor) clock(server, before, after time.Time) {
	offset := server.Sub(before.Add(after.Sub(before) / 2)).Abs().Round(time.Millisecond)
	d.say("clock", worse(offset, time.Second+after.Sub(before), time.Duration(1<<63-1)), fmt.Sprintf("%v apart from this machine", offset),
		"synchronize the clocks by NTP: leases do not depend on it, but times in logs and traces do")
}

// latency measures calls for a record that is not there.
func (d *doctor) latency(ctx context.Context) error {
	var took []time.Duration
	for range 11 {
		begun := time.Now()
		_, err := d.source.Get(ctx, "idem-doctor-asks-for-a-record-that-is-not-there")
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	middle := took[len(took)/2]
	d.say("latency", worse(middle, d.timeout/4, d.timeout/2), fmt.Sprintf("%v a call, with a timeout of %v", middle.Round(100*time.Microsecond), d.timeout),
		"at the timeout every request gets 503: find what is slow, and give the client a longer ReadTimeout until then")
	return nil
}

// mostWaiting is how many the doctor counts.
const mostWaiting = 1000

// waiting counts what waits for a decision.
func (d *doctor) waiting(ctx context.Context) error {
	q := store.Query{Holding: true, States: []store.State{store.Held}, Limit: mostWaiting}
	var held []store.Entry
	for more := true; more && len(held) < mostWaiting; more = q.Cursor != "" {
		page, err := timely{d.source.records}.List(ctx, q)
		if err != nil {
			return err
		}
		held, q.Cursor = append(held, page.Entries...), page.Next
	}
	found, orMore := "none", ""
	if q.Cursor != "" {
		orMore = " or more"
	}
	if len(held) > 0 {
		found = fmt.Sprintf("%d%s, the oldest for %s", len(held), orMore, inspect.Span(held[0].Record.Age))
	}
	d.say("held", worse(len(held), 1, math.MaxInt), found, "idem held lists them")
	return nil
}

// birth tells since when the store has forgotten nothing, as far as its mark says.
func (d *doctor) birth(ctx context.Context) error {
	g, err := guard(d.source.records)
	if err != nil {
		return err
	}
	born, err := inspect.BirthOf(ctx, g)
	switch {
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrUnreadableHere):
		d.say("birth", fail, born.Says, "docs/reference/runbook.md, IdempotencyStoreReset")
	case err != nil:
		return err
	case born.Born == "":
		d.say("birth", warn, born.Says, "run Guard.Reconcile in the service: it tells when the store has forgotten everything")
	default:
		d.say("birth", ok, "store born "+born.Says, "")
	}
	return nil
}
