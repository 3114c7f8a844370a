package engine

import (
	"context"
	"errors"
	"fmt"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// resolveHeld asks the resolver about a held record, whose events observe reports. It reports
// whether the record may have settled, so that it is worth another look.
func resolveHeld(ctx context.Context, a *Access, observe func(event.Event)) bool {
	e := &Engine{a.core, a.rules}
	if !e.core.resolving.enter(a.Name) {
		return false
	}
	defer e.core.resolving.leave(a.Name)
	_, rec, err := e.get(ctx, a.ID)
	failed := func(err error) bool {
		observe(event.Event{Kind: event.Unresolved, Attempt: rec.Attempt, Err: err})
		return false
	}
	switch {
	case errors.Is(err, store.ErrNotFound): // forgotten meanwhile
		return true
	case err != nil:
		return failed(err)
	case rec.State != store.Held:
		return true
	}
	if !rules.Derived.Of(e.keying(a.ID, &rec)) {
		return failed(fmt.Errorf("%w: the resolver is not asked", ErrOtherKeys))
	}
	res, err := e.askResolver(ctx, e.Found(a.ID, rec))
	if err != nil {
		return failed(err)
	}
	if res.Outcome == event.Unknown {
		return false
	}
	if res.Actor == "" {
		res.Actor = "resolver"
	}
	err = e.Resolve(context.WithoutCancel(ctx), a.ID, rec.Seen(), res)
	if err == nil || errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrNotFound) { // somebody else was faster
		return true
	}
	return failed(err)
}

// resolverFor returns the engine whose resolver is asked about records with a label, or nil.
func (e *Engine) resolverFor(label string) *Engine {
	switch rules := e.core.labelled.of(label); {
	case rules != nil && rules.Resolver != nil:
		return &Engine{e.core, rules}
	case e.rules.Resolver != nil:
		return e
	}
	return nil
}

// HasResolver reports whether Suggest can ask somebody about records with a label.
func (e *Engine) HasResolver(label string) bool { return e.resolverFor(label) != nil }

// ErrNoWord says why a resolver is not asked.
var ErrNoWord = errors.New("idempotency: nobody can be asked: the route has no resolver or keeps no keys, or the resolver is at work on the key")

// Suggest returns what the resolver says about a held record, for its fingerprint, and settles nothing.
func (e *Engine) Suggest(ctx context.Context, k intent.Key) (res Resolution, fp store.Fingerprint, err error) {
	_, rec, err := e.get(ctx, k)
	switch {
	case err != nil:
		return res, fp, err
	case rec.State != store.Held:
		return res, fp, store.ErrChanged
	}
	route := e.resolverFor(rec.Label)
	if route == nil {
		return res, fp, ErrNoWord
	}
	k = route.identify(ctx, k, rec)
	switch told := rules.Derived.Of(route.keying(k, &rec)); {
	case !told && k.Record == "":
		return res, fp, fmt.Errorf("%w: the resolver is not asked", ErrOtherKeys)
	case !told, !e.core.resolving.enter(k.Name()):
		return res, fp, ErrNoWord
	}
	defer e.core.resolving.leave(k.Name())
	res, err = route.askResolver(ctx, route.Found(k, rec))
	return res, rec.Fingerprint, err
}

// askResolver asks the program's function. Its panic is an error, for a client's request too: that has to
// hear that the outcome is unknown.
func (e *Engine) askResolver(ctx context.Context, f Found) (res Resolution, err error) {
	defer inflight.Recovered("the resolver", &err)
	if res, err = e.rules.Resolver(ctx, f); err != nil {
		err = errors.Join(fmt.Errorf("idempotency: the resolver returned an error: %w", err), context.Cause(ctx))
	}
	return res, err
}
