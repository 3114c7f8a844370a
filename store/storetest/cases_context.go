package storetest

import (
	"context"
	"time"

	"example.com/idempotency/store"
)

// The cases of contexts: what every store does with a context that is over, and what an
// [store.ContextStore] promises beyond that.

var contextCases = []testCase{
	{"Context/a cancelled Claim can be repeated", func(e *env) {
		e.cancelled().claim(alice)
		e.claim(alice).mine(1)
		e.claim(bob).claimed(1)
	}},
	{"Context/a cancelled Complete can be repeated", func(e *env) {
		e.claimed()
		e.cancelled().renew(alice)
		e.cancelled().complete(alice, "answer")
		e.complete(alice, "answer")
		e.claim(bob).answer("answer")
	}},
	{"Context/a cancelled Release can be repeated", func(e *env) {
		e.claimed()
		e.cancelled().release(alice)
		e.release(alice)
		e.claim(bob).mine(2)
		e.cancelled().hold(bob)
		e.hold(bob)
		e.claim(carol).held(2)
	}},
}

var contextStoreCases = []testCase{
	{"ContextStore/calls after their deadline return", func(e *env) { keepsDeadline(e, -time.Second) }},
	// The deadline is so short that it may pass anywhere in a call, for example while the
	// call waits for a lock or for a connection.
	{"ContextStore/calls return by their deadline", func(e *env) { keepsDeadline(e, time.Millisecond) }},
}

// keepsDeadline makes several calls of each method at once. It fails the case unless all of
// them return, with or without an error, and the store still works afterwards. It skips the
// case if the store does not promise that.
func keepsDeadline(e *env, timeout time.Duration) {
	e.t.Helper()
	if s, ok := e.store.(store.ContextStore); !ok || !s.ObeysContext() {
		e.t.Skip("the store is not an idempotency.ContextStore that obeys contexts")
	}
	e.claimed()
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	returned := make(map[string]chan struct{})
	const callers = 5
	for name, call := range callsOf(e.store) {
		calls := make(chan struct{}, callers)
		for range callers {
			go func() {
				call(ctx)
				calls <- struct{}{}
			}()
		}
		returned[name] = calls
	}
	late := time.After(patience)
	for name, calls := range returned {
		for range callers {
			select {
			case <-calls:
			case <-late:
				e.t.Fatalf("%s has not returned %v after its deadline", name, patience)
			}
		}
	}
	e.on("afterwards").claim(bob).mine(1)
}

// callsOf returns a call of each method that the store has, by the name of the method.
// What the call returns does not matter.
func callsOf(s store.Store) map[string]func(context.Context) {
	key := keyOf("key")
	calls := map[string]func(context.Context){
		"Claim":    func(ctx context.Context) { _, _ = s.Claim(ctx, key, claimOf(bob)) },
		"Renew":    func(ctx context.Context) { _ = s.Renew(ctx, key, alice) },
		"Complete": func(ctx context.Context) { _ = s.Complete(ctx, key, alice, completion("answer")) },
		"Release":  func(ctx context.Context) { _ = s.Release(ctx, key, alice, store.Release{}) },
		"Hold":     func(ctx context.Context) { _ = s.Hold(ctx, key, alice, nil) },
	}
	if s, ok := s.(store.StepStore); ok {
		calls["SaveStep"] = func(ctx context.Context) { _ = s.SaveStep(ctx, key, alice, "name", []byte("value")) }
	}
	if s, ok := s.(store.Watcher); ok {
		calls["Watch"] = func(ctx context.Context) {
			if _, stop, err := s.Watch(ctx, key); err == nil {
				stop()
			}
		}
	}
	if s, ok := s.(store.Inspector); ok {
		calls["Get"] = func(ctx context.Context) { _, _ = s.Get(ctx, key) }
		calls["Resolve"] = func(ctx context.Context) { _ = s.Resolve(ctx, key, heldBy(alice, 1), answered("resolved")) }
		calls["GetAnswer"] = func(ctx context.Context) { _, _ = s.GetAnswer(ctx, key) }
		calls["Forget"] = func(ctx context.Context) { _ = s.Forget(ctx, key, heldBy(alice, 1)) }
	}
	if s, ok := s.(store.Lister); ok {
		calls["List"] = func(ctx context.Context) { _, _ = s.List(ctx, store.Query{}) }
	}
	if s, ok := s.(store.Finder); ok {
		calls["Find"] = func(ctx context.Context) { _, _ = s.Find(ctx, tagOf("77"), store.Query{}) }
	}
	return calls
}
