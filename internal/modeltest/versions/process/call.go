package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/client/journal"
	"example.com/idempotency/internal/modeltest/versions"
	"example.com/idempotency/store"
)

// call carries out one call.
func (p *process) call(ctx context.Context, c *versions.Call) (r versions.Reply) {
	g := p.guards[c.Guard]
	key := idempotency.Key{Scope: scopeOf(c.Guard, c.Key), Value: c.Key}
	var err error
	switch c.Op {
	case "request":
		r = p.request(ctx, g, c, nil)
	case "start": // returns as soon as the handler waits
		r, err = p.start(ctx, g, c)
	case "finish": // lets the handler that waits go on
		r, err = p.finish(ctx, c)
	case "do":
		r = p.do(ctx, g, key, c)
	case "look":
		r.Look, err = look(ctx, g, key)
	case "resolve":
		var info idempotency.RecordInfo
		if info, err = g.Lookup(ctx, key); err == nil {
			res := idempotency.Resolution{Outcome: idempotency.NotExecuted, Decision: idempotency.Decision{Actor: "test", Reason: "asked"}}
			if c.Final {
				res.Outcome, res.Status, res.Body = idempotency.Final, 201, []byte(c.Body)
			}
			if !c.Final && len(info.Steps) > 0 {
				res.Outcome = idempotency.Resume
			}
			err = g.Resolve(ctx, key, info.Seen(), res)
		}
	case "forget":
		var info idempotency.RecordInfo
		if info, err = g.Lookup(ctx, key); err == nil {
			err = g.Forget(ctx, key, info.Seen(), idempotency.Decision{Actor: "test"})
		}
	case "find":
		r.Names, err = find(ctx, g, key)
	case "erase":
		r.Names, err = erase(ctx, g, key)
	case "list":
		var page store.Page
		page, err = g.store.(store.Lister).List(ctx, store.Query{Holding: true, Label: c.Label, Limit: 1, Cursor: c.Next})
		for _, e := range page.Entries {
			r.Names = append(r.Names, e.Key)
		}
		r.Next = page.Next
	case "damage":
		p.mu.Lock()
		r.Names = append(r.Names, p.damage...)
		p.mu.Unlock()
	case "intend":
		err = intend(ctx, c.Path)
	case "intentions":
		r.Names, err = intentions(ctx, c.Path)
	default:
		err = fmt.Errorf("no operation %q", c.Op)
	}
	if err != nil {
		r.Error, r.Elsewhere = err.Error(), errors.Is(err, idempotency.ErrUnreadableHere)
	}
	return r
}

// look is what an operator sees of a key.
func look(ctx context.Context, g *guard, key idempotency.Key) (l versions.Look, err error) {
	info, err := g.Lookup(ctx, key)
	if err != nil {
		return tombstone(info), err
	}
	named, err := g.Lookup(ctx, idempotency.Key{Record: info.Record})
	return versions.Look{
		Key: info.Key.Value, State: info.State.String(), Route: info.Route, Attempt: info.Attempt, Status: info.Status,
		Size: info.Size, Steps: stepsOf(info), Runs: len(info.Runs), Started: info.Started, Named: named.Key.Value,
		Decisions: decisions(info),
	}, err
}

// decisions tells of the decisions about a record.
func decisions(info idempotency.RecordInfo) (all []string) {
	for _, d := range info.Decisions {
		all = append(all, fmt.Sprintf("%+v", d))
	}
	return all
}

// stepsOf are the steps that have happened or may have.
func stepsOf(info idempotency.RecordInfo) []string {
	return slices.Sorted(slices.Values(slices.Concat(info.Steps, info.InDoubt)))
}

// do runs a function under a key.
func (p *process) do(ctx context.Context, g *guard, key idempotency.Key, c *versions.Call) (r versions.Reply) {
	value, result, err := idempotency.Do(ctx, g.Guard, key, func(context.Context) (map[string]int, error) {
		r.Ran = true
		if c.Do == "error" {
			return nil, idempotency.Permanent(errors.New("no such account"))
		}
		return map[string]int{"charge": 7}, nil
	}, idempotency.WithPayload([]byte(c.Body)))
	text, _ := json.Marshal(value)
	r.Result = fmt.Sprintf("%s attempt %d held %t %s", text, result.Attempt, result.Held, result.Code)
	if err != nil {
		r.Error, r.Elsewhere = err.Error(), errors.Is(err, idempotency.ErrUnreadableHere)
	}
	return r
}

// intend makes a journal with a finished intent and a pending one.
func intend(ctx context.Context, path string) error {
	j, err := journal.Open(path)
	if err != nil {
		return err
	}
	request := journal.Request{Method: "POST", URL: "https://server.test/charges", ContentType: "text/plain", Body: []byte("body")}
	_, err1 := j.Begin(ctx, "done", request)
	_, err2 := j.Begin(ctx, "pending", request)
	return errors.Join(err1, err2, j.Done(ctx, "done", []byte("result")), j.Close())
}

// intentions tells what a journal has in it.
func intentions(ctx context.Context, path string) (names []string, err error) {
	j, err := journal.Open(path)
	if err != nil {
		return nil, err
	}
	pending, err := j.Pending(ctx)
	for _, e := range pending {
		names = append(names, fmt.Sprintf("%s %s %s %s %s %t", e.Name, e.Key, e.Since, e.Request.URL, e.Request.Body, e.Resumed))
	}
	done, err1 := j.Begin(ctx, "done", journal.Request{})
	names = append(names, fmt.Sprintf("%s %s %s %s", done.Name, done.Key, done.Finished, done.Result))
	if strings.TrimSpace(done.Name) == "" {
		err1 = errors.Join(err1, errors.New("the finished intent is not known"))
	}
	return names, errors.Join(err, err1, j.Close())
}
