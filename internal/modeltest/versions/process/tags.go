package main

import (
	"context"
	"fmt"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/internal/modeltest/versions"
	"example.com/idempotency/store"
)

// findable are the options of guards whose records are found. A table of an earlier schema has no place for tags.
func findable(st idempotency.Store) []idempotency.Option {
	if f, ok := st.(store.Finder); !ok || f.KeepsTags() != nil {
		return nil
	}
	return []idempotency.Option{
		idempotency.WithFindableScope(true),
		idempotency.WithReference(func(r *http.Request, _ []byte) string { return "order " + r.Header.Get("Idempotency-Key") }),
	}
}

// find returns what is found by the reference and by the scope of a key.
func find(ctx context.Context, g *guard, key idempotency.Key) (names []string, err error) {
	for by, f := range []idempotency.Finding{{Reference: "order " + key.Value}, {Scope: key.Scope}} {
		all, _, err := g.Find(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, info := range all {
			names = append(names, fmt.Sprint(by, info.Record, info.State, info.Route, info.Attempt))
		}
	}
	return names, nil
}

// erase erases the records of the scope of a key.
func erase(ctx context.Context, g *guard, key idempotency.Key) ([]string, error) {
	done, err := g.Erase(ctx, idempotency.Erasing{Scope: key.Scope, Decision: idempotency.Decision{Actor: "test", Reason: "gone"}})
	return []string{fmt.Sprint(done.Completed, done.Unanswered, done.Held, done.InFlight, done.HeldLeft, done.Changed)}, err
}

// tombstone tells what is left of a record that was forgotten.
func tombstone(info idempotency.RecordInfo) (l versions.Look) {
	if f := info.Forgotten; f != nil {
		l = versions.Look{State: f.State.String(), Route: f.Route, Attempt: f.Attempt, Decisions: decisions(*f)}
	}
	return l
}
