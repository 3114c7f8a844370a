package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is a store as a desk: a guard of our own looks at its records, and decides about them.

// noRoute is the label of a guard that knows of no route what it derives, not even of one without a label.
const noRoute = "no route of a service"

// guard returns a guard that looks at the records of a store and decides about them.
func guard(st store.Store, opts ...idempotency.Option) (*idempotency.Guard, error) {
	opts = append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)), idempotency.WithRoute(noRoute))
	return idempotency.New(st, idempotency.SharedScope, opts...)
}

// finder returns a guard that finds by the secret in the file that is named, if one is.
func (s *source) finder() (*idempotency.Guard, error) {
	tombstones := idempotency.WithTombstones(s.target.tombstone)
	if s.target.secret == "" {
		return guard(s.records, tombstones)
	}
	data, err := os.ReadFile(s.target.secret)
	if err != nil {
		return nil, usage("--secret-file: %w", err)
	}
	return guard(s.records, tombstones, idempotency.WithDerivation("", data))
}

// lookInto looks at a record, and at what may be decided about it.
func (s *source) lookInto(ctx context.Context, record string) (*inspect.Ruling, error) {
	r := &inspect.Ruling{TTL: s.target.ttl, NotDone: inspect.NotDone}
	var err error
	if r.Guard, err = guard(s.records, idempotency.WithTTL(s.target.ttl), idempotency.WithTombstones(s.target.tombstone)); err != nil {
		return nil, usage("%w", err)
	}
	return r, r.LookInto(ctx, s.records, idempotency.Key{Record: record})
}

func (s *source) Held(ctx context.Context, q store.Query) (found []inspect.Record, next string, err error) {
	g, err := guard(s.records)
	if err != nil {
		return nil, "", err
	}
	infos, next, err := inspect.LookPage(ctx, timely{s.records}.List, func(string) *idempotency.Guard { return g }, q)
	return recordsOf(infos), next, err
}

func (s *source) Running(ctx context.Context, q store.Query) ([]inspect.Record, string, error) {
	g, err := guard(s.records)
	if err != nil {
		return nil, "", err
	}
	infos, next, err := inspect.LookPage(ctx, timely{s.records}.List, func(string) *idempotency.Guard { return g }, q)
	return inspect.RunsOf(infos), next, err
}

func recordsOf(infos []idempotency.RecordInfo) (all []inspect.Record) {
	for _, i := range infos {
		all = append(all, inspect.RecordOf(i))
	}
	return all
}

// timely lists the records of keys with a bound on each call: no guard gives it one.
type timely struct{ store.Lister }

func (t timely) List(ctx context.Context, q store.Query) (store.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	page, err := t.Lister.List(ctx, q)
	return page.OfKeys(), err
}

func (s *source) Listing(ctx context.Context, q store.Query) (inspect.List, error) {
	page, err := timely{s.records}.List(ctx, q)
	l := inspect.List{Next: page.Next}
	for _, e := range page.Entries {
		l.Records = append(l.Records, inspect.ListedOf(e))
	}
	return l, err
}

func (s *source) Count(ctx context.Context) (inspect.Tally, error) {
	t, q := inspect.Tally{}, store.Query{Limit: 1000}
	for more := true; more; more = q.Cursor != "" {
		page, err := timely{s.records}.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			t.Entry(e)
		}
		q.Cursor = page.Next
	}
	return t, nil
}

func (s *source) Birth(ctx context.Context) (inspect.Birth, error) {
	g, err := guard(s.records)
	if err != nil {
		return inspect.Birth{}, err
	}
	return inspect.BirthOf(ctx, g)
}

func (s *source) Why(ctx context.Context, record string) (inspect.Story, error) {
	r, err := s.lookInto(ctx, record)
	if err != nil {
		return inspect.Story{}, err
	}
	return r.Story(ctx), nil
}

func (*source) Answer(context.Context, string) (inspect.ShownAnswer, error) {
	return inspect.ShownAnswer{}, usage("--answer needs --server: only the service knows how it records, and who may see that")
}

func (*source) Ask(context.Context, string) (inspect.Word, error) {
	return inspect.Word{}, usage("--ask needs --server: only the service has the resolver")
}

func (s *source) OfKey(ctx context.Context, k idempotency.Key) (inspect.Record, error) {
	g, err := guard(s.records)
	if err != nil {
		return inspect.Record{}, err
	}
	info, err := inspect.Look(ctx, g, k)
	return inspect.RecordOf(info), err
}

func (s *source) Find(ctx context.Context, f idempotency.Finding) ([]inspect.Record, string, error) {
	g, err := s.finder()
	if err != nil {
		return nil, "", err
	}
	by, value := inspect.ByReference, f.Reference
	if f.Scope != "" {
		by, value = inspect.ByTenant, f.Scope
	}
	pages := func(ctx context.Context, q store.Query) (store.Page, error) {
		return inspect.FinderOf(g).Page(ctx, by, value, q)
	}
	infos, next, err := inspect.LookPage(ctx, pages, func(string) *idempotency.Guard { return g }, store.Query{Limit: f.Limit, Cursor: f.Cursor})
	return recordsOf(infos), next, err
}

func (s *source) Walk(ctx context.Context, by, text, cursor string) (found []inspect.Record, next string, err error) {
	if by == inspect.ByOperation {
		return nil, "", usage("--operation needs --server: an operation ID is a digest of the client's key, and only the service can read the keys that its routes keep (WithKeptKeys)")
	}
	g, err := guard(s.records)
	if err != nil {
		return nil, "", err
	}
	is, _ := inspect.Walked(by, text)
	infos, next, err := inspect.LookPage(ctx, timely{s.records}.List, func(string) *idempotency.Guard { return g },
		store.Query{Holding: true, Limit: 100, Cursor: cursor})
	return recordsOf(slices.DeleteFunc(infos, func(i idempotency.RecordInfo) bool { return !is(i) })), next, err
}

func (s *source) Decide(ctx context.Context, o inspect.Order) (inspect.Decision, error) {
	o.Resolution.Actor = s.target.actor
	if o.Word == "final" && !s.target.unsealed {
		return o.Told(), usage("final needs --unsealed, which says that the route has no sealer. If it has one, decide through the service: by --server, or by Guard.Resolve. It could not read an answer from here")
	}
	r, err := s.lookInto(ctx, o.Record)
	if err != nil {
		return o.Told(), err
	}
	return r.Decide(ctx, o)
}

func (s *source) Erase(ctx context.Context, what idempotency.Erasing) (inspect.Erased, error) {
	what.Actor = s.target.actor
	g, err := s.finder()
	if err != nil {
		return inspect.Erased{}, err
	}
	d, err := g.Erase(ctx, what)
	return inspect.Erased{
		Type: "erased", DryRun: what.DryRun, Completed: d.Completed, Unanswered: d.Unanswered, Held: d.Held, HeldLeft: d.HeldLeft, InFlight: d.InFlight, Younger: d.Younger, Changed: d.Changed,
		OlderThan: int64(what.OlderThan / time.Second),
	}, err
}
