package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// This file holds the functions that docs/reference/runbook.md shows, and runs them.

// printHeld prints what somebody has to resolve, oldest first.
func printHeld(ctx context.Context, guard *idempotency.Guard, st store.Lister) error {
	q := store.Query{Holding: true, States: []store.State{store.Held}}
	for more := true; more; more = q.Cursor != "" {
		page, err := st.List(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			info, err := guard.Lookup(ctx, idempotency.Key{Record: e.Key})
			if err != nil {
				fmt.Println(e.Key, err) // it has gone meanwhile, or cannot be read
				continue
			}
			fmt.Printf("%s %s attempt %d, held for %v, steps %v, in doubt %v, trace %v\n",
				info.Record, info.Route, info.Attempt, info.Age.Round(time.Second), info.Steps, info.InDoubt, info.Trace)
		}
		q.Cursor = page.Next
	}
	return nil
}

// settleHeld settles a held key of a handler with one effect, by what the provider says of the charge.
// find asks it for the charge that was made with an idempotency key.
func settleHeld(ctx context.Context, guard *idempotency.Guard, record, actor string, find func(key string) ([]byte, error)) error {
	key := idempotency.Key{Record: record}
	info, err := guard.Lookup(ctx, key)
	switch {
	case err != nil:
		return err
	case info.ID == "":
		return errKeyNotKept // an empty key is not known to the provider, and that says nothing
	}
	res := idempotency.Resolution{Decision: idempotency.Decision{Actor: actor, Reason: "asked the provider"}}
	switch charge, err := find(info.DeriveKey("charge")); { // the key that the run has sent with its charge
	case err == nil:
		res.Outcome, res.Status, res.Body = idempotency.Final, http.StatusCreated, charge
	case errors.Is(err, errNoCharge):
		res.Outcome = idempotency.NotExecuted
	default:
		return err // nobody knows yet, and the key stays held
	}
	return guard.Resolve(ctx, key, info.Seen(), res)
}

// forgetUnreadable makes a key free again whose record cannot be read.
func forgetUnreadable(ctx context.Context, guard *idempotency.Guard, record, actor, reason string) error {
	key := idempotency.Key{Record: record}
	info, err := guard.Lookup(ctx, key)
	switch {
	case err == nil:
		return errReadable // look at it before you decide
	case !errors.Is(err, idempotency.ErrCorrupt):
		return err
	}
	return guard.Forget(ctx, key, info.Seen(), idempotency.Decision{Actor: actor, Reason: reason})
}

var (
	errNoCharge   = errors.New("no charge with this key")
	errReadable   = errors.New("the record can be read: nothing was forgotten")
	errKeyNotKept = errors.New("the route does not keep its keys: find scope and key in your own data")
)

// A process died between the charge and its answer. Its key is found, and settled by what the
// provider knows.
func ExampleGuard_Resolve_runbook() {
	sealer, err := idempotency.NewSealer([]byte("0123456789abcdef0123456789abcdef")) // from your secret store
	if err != nil {
		fmt.Println(err)
		return
	}
	st := idempotency.NewMemoryStore()
	guard, err := idempotency.New(st, idempotency.SharedScope,
		idempotency.WithRoute("POST /charges"), idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithSealer(sealer), idempotency.WithKeptKeys(true),
		adapter.WithTraceContext(func(context.Context) event.TraceContext {
			return event.TraceContext{TraceID: [16]byte{0xa1}, SpanID: [8]byte{0xb2}, Flags: 1} // of your tracing library
		}))
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
	fmt.Println(printHeld(ctx, guard, st))
	const record = "UohFQjZneZ0qRYcG5Csuc6gRaHOSY12GfXi9OB-pudY" // as printed
	err = settleHeld(ctx, guard, record, "ada", func(key string) ([]byte, error) {
		if c, ok := charges[key]; ok {
			return []byte(c), nil
		}
		return nil, errNoCharge
	})
	fmt.Println(err)
	send(h, "key-1", "{}")
	// Output:
	// 502
	// UohFQjZneZ0qRYcG5Csuc6gRaHOSY12GfXi9OB-pudY POST /charges attempt 1, held for 0s, steps [], in doubt [], trace 00-a1000000000000000000000000000000-b200000000000000-01
	// <nil>
	// <nil>
	// 201 charge 1 (replayed)
}

// damaged is a store in which somebody has written into each record.
type damaged struct{ *idempotency.MemoryStore }

func (damaged) Get(context.Context, string) (store.Record, error) {
	return store.Record{}, idempotency.ErrCorrupt
}

func (d damaged) Forget(ctx context.Context, record string, _ store.Seen) error {
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
	const record = "UohFQjZneZ0qRYcG5Csuc6gRaHOSY12GfXi9OB-pudY" // as the log says
	fmt.Println(forgetUnreadable(context.Background(), guard, record, "ada", "nothing found in our data"))
	send(h, "key-1", "{}")
	// Output:
	// 200 run 1
	// <nil>
	// 200 run 2
}
