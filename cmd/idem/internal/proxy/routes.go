package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"example.com/idempotency"
)

// everything is the pattern of the requests that no route names.
const everything = "/"

// A rule is what holds for the requests of a pattern: a guard, or none where they pass unprotected.
type rule struct {
	Route
	guard   *idempotency.Guard
	methods []string // that the guard protects
	handler http.Handler
}

// A table finds the rule of a request.
type table struct {
	mux   *http.ServeMux
	rules map[string]*rule
	order []string // of the patterns, that of everything last
	root  *idempotency.Guard
}

// newTable makes the rules, each with a guard on one store. All mistakes are reported at once.
func newTable(c *Config, store idempotency.Store, scope idempotency.ScopeFunc, common ...idempotency.Option) (*table, error) {
	t := &table{mux: http.NewServeMux(), rules: map[string]*rule{}}
	all := Route{Match: everything, Rules: c.Rules}
	base, errs := all.options()
	root, err := idempotency.New(store, scope, slices.Concat(common, base)...)
	if errs = errors.Join(errs, err); errs != nil {
		return nil, errs
	}
	t.root = root
	for _, r := range append(slices.Clone(c.Routes), all) {
		if r.Match == everything && len(t.order) < len(c.Routes) {
			errs = errors.Join(errs, fmt.Errorf("route %q: the rules for all requests stand beside routes, not among them", everything))
			continue
		}
		inherited := r.inherit(c.Rules)
		opts, err := inherited.options()
		if err == nil {
			_, err = idempotency.New(store, scope, opts...) // tells what With would panic for
		}
		if err == nil {
			err = panicOf(func() { t.mux.Handle(r.Match, http.NotFoundHandler()) })
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("route %q: %w", r.Match, err))
			continue
		}
		t.order = append(t.order, r.Match)
		made := &rule{Route: inherited}
		if r.Protect == nil || *r.Protect {
			made.guard = root.With(opts...)
			made.methods = made.guard.Policy().Methods
		}
		t.rules[r.Match] = made
	}
	return t, errs
}

// guards returns the guards by the label that their records have.
func (t *table) guards() map[string]*idempotency.Guard {
	all := map[string]*idempotency.Guard{}
	for pattern, r := range t.rules {
		if r.guard != nil {
			all[pattern] = r.guard
		}
	}
	return all
}

// inherit returns the route with the rules for all where it has none of its own.
func (r Route) inherit(all Rules) Route {
	own := &r.Rules
	if method, _, ok := strings.Cut(r.Match, " "); ok && own.Methods == nil {
		own.Methods = []string{method}
	}
	if own.Methods == nil {
		own.Methods = all.Methods
	}
	if own.Required == nil {
		own.Required = all.Required
	}
	for _, word := range []struct{ own, all *string }{{&own.Recovery, &all.Recovery}, {&own.Fingerprint, &all.Fingerprint}, {&own.Reference, &all.Reference}} {
		if *word.own == "" {
			*word.own = *word.all
		}
	}
	if own.Timeout == 0 {
		own.Timeout = all.Timeout
	}
	return r
}

// options are those of the route's guard. What is zero is that of the guard for all requests.
func (r *Route) options() ([]idempotency.Option, error) {
	recovery, err := recoveryOf(r.Recovery)
	fingerprint, err2 := fingerprintOf(r.Fingerprint)
	reference, err3 := referenceOf(r.Reference)
	if errs := errors.Join(err, err2, err3); errs != nil {
		return nil, errs
	}
	if r.Timeout <= 0 {
		return nil, fmt.Errorf("timeout: %v must be positive", r.Timeout)
	}
	opts := []idempotency.Option{
		idempotency.WithRoute(r.Match), idempotency.WithRecovery(recovery), idempotency.WithFingerprint(fingerprint), idempotency.WithReference(reference),
		idempotency.WithLimits(idempotency.Limits{RequestBody: r.RequestBody, ResponseBody: r.ResponseBody}),
	}
	when := func(set bool, o func() idempotency.Option) {
		if set {
			opts = append(opts, o())
		}
	}
	when(r.Methods != nil, func() idempotency.Option { return idempotency.WithMethods(r.Methods...) })
	when(r.Required != nil, func() idempotency.Option { return idempotency.WithRequired(*r.Required) })
	when(r.TTL != 0, func() idempotency.Option { return idempotency.WithTTL(r.TTL) })
	when(r.Lease != 0, func() idempotency.Option { return idempotency.WithLease(r.Lease) })
	when(r.Wait != 0, func() idempotency.Option { return idempotency.WithWait(r.Wait) })
	return opts, nil
}
