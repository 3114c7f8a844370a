package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency"
)

// This file holds the functions that docs/runbook.md shows, and runs them.

// printHeld prints what somebody has to resolve, oldest first.
func printHeld(ctx context.Context, store idempotency.Lister) error {
	q := idempotency.Query{Holding: true, States: []idempotency.State{idempotency.StateHeld}}
	for {
		page, err := store.List(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			fmt.Printf("%s %s attempt %d, held for %v\n", e.Key, e.Record.Label, e.Record.Attempt, e.Record.Age.Round(time.Second))
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// settleHeld settles a held key by what the provider says of the charge. find asks it for the
// charge that was made with an idempotency key.
func settleHeld(ctx context.Context, guard *idempotency.Guard, key idempotency.Key, find func(key string) ([]byte, error)) error {
	info, err := guard.Lookup(ctx, key)
	if err != nil {
		return err
	}
	charge, err := find(info.DeriveKey("charge")) // the key that the run has sent with its charge
	switch {
	case errors.Is(err, errNoCharge):
		return guard.Resolve(ctx, key, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted})
	case err != nil:
		return err // nobody knows yet, and the key stays held
	}
	return guard.Resolve(ctx, key, info.Seen(), idempotency.Resolution{
		Outcome: idempotency.Final, Status: http.StatusCreated, Body: charge,
	})
}

// forgetUnreadable makes a key free again whose record cannot be read.
func forgetUnreadable(ctx context.Context, guard *idempotency.Guard, key idempotency.Key) error {
	info, err := guard.Lookup(ctx, key)
	if !errors.Is(err, idempotency.ErrCorrupt) {
		return err
	}
	return guard.Forget(ctx, key, info.Seen(), idempotency.Decision{Actor: "on call", Reason: "nothing found in our data"})
}

var errNoCharge = errors.New("no charge with this key")

// A process died between the charge and its answer. Its key is found, and settled by what the
// provider knows.
func ExampleGuard_Resolve_runbook() {
	store := idempotency.NewMemoryStore()
	guard, err := idempotency.New(store, idempotency.SharedScope,
		idempotency.WithRoute("charges"), idempotency.WithRecovery(idempotency.Hold))
	if err != nil {
		fmt.Println(err)
		return
	}
	charges := make(map[string]string) // at the provider, by idempotency key
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charges[idempotency.DeriveKey(r.Context(), "charge")] = "charge 1"
		w.WriteHeader(http.StatusBadGateway)
	}))
	send(h, "key-1", "{}")

	ctx := context.Background()
	fmt.Println(printHeld(ctx, store))
	err = settleHeld(ctx, guard, idempotency.Key{Scope: idempotency.Shared, Value: "key-1"}, func(key string) ([]byte, error) {
		if c, ok := charges[key]; ok {
			return []byte(c), nil
		}
		return nil, errNoCharge
	})
	fmt.Println(err)
	send(h, "key-1", "{}")
	// Output:
	// 502
	// UohFQjZneZ0qRYcG5Csuc6gRaHOSY12GfXi9OB-pudY charges attempt 1, held for 0s
	// <nil>
	// <nil>
	// 201 charge 1 (replayed)
}

// damaged is a store in which somebody has written into each record.
type damaged struct{ *idempotency.MemoryStore }

func (damaged) Get(context.Context, string) (idempotency.Record, error) {
	return idempotency.Record{}, idempotency.ErrCorrupt
}

func (d damaged) Forget(ctx context.Context, record string, _ idempotency.Seen) error {
	r, err := d.MemoryStore.Get(ctx, record)
	if err != nil {
		return err
	}
	return d.MemoryStore.Forget(ctx, record, r.Seen())
}

// A record that cannot be read is forgotten, and its key runs again.
func ExampleGuard_Forget_runbook() {
	guard, err := idempotency.New(damaged{idempotency.NewMemoryStore()}, idempotency.SharedScope)
	if err != nil {
		fmt.Println(err)
		return
	}
	runs := 0
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; fmt.Fprint(w, "run ", runs) }))
	send(h, "key-1", "{}")
	fmt.Println(forgetUnreadable(context.Background(), guard, idempotency.Key{Scope: idempotency.Shared, Value: "key-1"}))
	send(h, "key-1", "{}")
	// Output:
	// 200 run 1
	// <nil>
	// 200 run 2
}
