package storetest

import (
	"context"
	"time"

	"example.com/idempotency/store"
)

// The cases of contexts: what every store does with a context that is over, and what an
// [store.ContextStore] promises beyond that.

func contextCases() []testCase {
	return []testCase{
		{"Context/a cancelled Claim can be repeated", contextClaim},
		{"Context/a cancelled Complete can be repeated", contextComplete},
		{"Context/a cancelled Release can be repeated", contextRelease},
	}
}

func contextStoreCases() []testCase {
	return []testCase{
		{"ContextStore/calls after their deadline return", deadlinePassed},
		{"ContextStore/calls return by their deadline", deadlinePasses},
	}
}

// cancelled returns a context that is already over.
func (e *env) cancelled() context.Context {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	return ctx
}

// unknown fails the case if err is nil, because a caller whose context is over must not go
// on as if nothing had happened. The call may have taken effect or not, as when a server is
// cut off in the middle of it.
func (e *env) unknown(call string, err error) {
	e.t.Helper()
	if err == nil {
		e.t.Fatalf("%s with a cancelled context: got no error", call)
	}
}

func contextClaim(e *env) {
	_, err := e.store.Claim(e.cancelled(), key, claimOf(alice))
	e.unknown("Claim", err)
	e.mine(e.claim(key, alice), 1)
	e.notMine(e.claim(key, bob), store.Claimed, 1)
}

func contextComplete(e *env) {
	e.claimed()
	e.unknown("Renew", e.store.Renew(e.cancelled(), key, alice))
	e.unknown("Complete", e.store.Complete(e.cancelled(), key, alice, completion("answer")))
	e.ok("repeated Complete", e.complete(alice, "answer"))
	e.answer(e.claim(key, bob), "answer")
}

func contextRelease(e *env) {
	e.claimed()
	e.unknown("Release", e.store.Release(e.cancelled(), key, alice, store.Release{}))
	e.ok("repeated Release", e.release(alice))
	e.mine(e.claim(key, bob), 2)
	e.unknown("Hold", e.store.Hold(e.cancelled(), key, bob))
	e.ok("repeated Hold", e.store.Hold(e.ctx, key, bob))
	e.notMine(e.claim(key, carol), store.Held, 2)
}

func deadlinePassed(e *env) { e.keepsDeadline(-time.Second) }

// The deadline is so short that it may pass anywhere in a call, for example while the
// call waits for a lock or for a connection.
func deadlinePasses(e *env) { e.keepsDeadline(time.Millisecond) }

// keepsDeadline makes several calls of each method at once. It fails the case unless all of
// them return, with or without an error, and the store still works afterwards. It skips the
// case if the store does not promise that.
func (e *env) keepsDeadline(timeout time.Duration) {
	e.t.Helper()
	if s, ok := e.store.(store.ContextStore); !ok || !s.ObeysContext() {
		e.t.Skip("the store is not an idempotency.ContextStore that obeys contexts")
	}
	e.claimed()
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	returned := make(map[string]chan struct{})
	const callers = 5
	for name, call := range e.calls() {
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
	e.mine(e.claim(keyOf("afterwards"), bob), 1)
}

// calls returns a call of each method that the store has, by the name of the method.
// What the call returns does not matter.
func (e *env) calls() map[string]func(context.Context) {
	s := e.store
	calls := map[string]func(context.Context){
		"Claim":    func(ctx context.Context) { _, _ = s.Claim(ctx, key, claimOf(bob)) },
		"Renew":    func(ctx context.Context) { _ = s.Renew(ctx, key, alice) },
		"Complete": func(ctx context.Context) { _ = s.Complete(ctx, key, alice, completion("answer")) },
		"Release":  func(ctx context.Context) { _ = s.Release(ctx, key, alice, store.Release{}) },
		"Hold":     func(ctx context.Context) { _ = s.Hold(ctx, key, alice) },
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
	return calls
}
