package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// A Birth is what the mark tells that a service has left in its store.
type Birth struct {
	Type string `json:"type"`
	Born string `json:"born,omitempty" jsonschema:"when the store was first seen; absent if nobody has marked it"`
	Says string `json:"says" jsonschema:"when the store was born, or why that is not known"`
}

// BirthMark is the name of the record that is the mark.
var BirthMark = intent.BirthMark

// Unmarked is what is said of a store that has no mark.
const Unmarked = "not known: no process has looked, by Guard.Reconcile or Guard.Check"

// BirthOf returns what is known of the birth of a guard's store. An error says that its mark cannot be read.
func BirthOf(ctx context.Context, g *idempotency.Guard) (Birth, error) {
	born := Birth{Type: "birth", Says: Unmarked}
	if _, ok := StoreOf(g).(*idempotency.MemoryStore); ok {
		born.Says = "with this process, and ends with it"
		return born, nil
	}
	mark, err := g.Hook().Engine().Birth(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		err = fmt.Errorf("the mark of the store's birth cannot be read: %w", err)
		born.Says = err.Error()
		return born, err
	default:
		born.Born = mark.At.UTC().Format(time.RFC3339)
		born.Says = mark.At.UTC().Format("2006-01-02 15:04 UTC") + ", " + Span(time.Since(mark.At)) + " ago"
	}
	return born, nil
}
