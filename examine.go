package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/frameworks"
	"example.com/idempotency/internal/reread"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// examine finds out what a request is: its key, whose key it is, and its identity. It reports
// false if it has decided what the request gets. The cheap refusals come first. The body is read
// before anything is claimed, so a body that drips in holds no claim.
func (rt *route) examine(r *http.Request, body *requestBody, d *decision) (id engine.Identity, ok bool) {
	fromHeader := rt.set.keyFunc == nil
	if fromHeader {
		values := rt.set.keyFields(r.Header)
		if rt.isNested(r, values, d) {
			return id, false
		}
		switch present := rt.readKey(values, d); {
		case d.kind == refuse:
			return id, false
		case !present && rt.set.required:
			d.refuse(problem.KeyMissing)
			return id, false
		case !present:
			rt.reportBypass(r)
			return id, false
		}
	}
	if err := frameworks.Protocol(r.Header); err != nil && rt.set.binding() != policy.Own {
		d.refuseFor(err, problem.FingerprintFailed)
		return id, false
	}
	if rt.readScope(r, d); d.kind == refuse {
		return id, false
	}
	if p := body.read(r, rt.set.maxRequestBody); p != nil {
		if d.kind, d.problem = refuse, *p; p.Detail == consumedDetail {
			d.cause = errConsumed
		}
		return id, false
	}
	if err := frameworks.Message(body.bytes); err != nil && rt.set.binding() != policy.Own {
		d.refuseFor(err, problem.FingerprintFailed)
		return id, false
	}
	if !fromHeader {
		switch rt.deriveKey(r, body.bytes, d); {
		case d.kind == refuse:
			return id, false
		case d.id.Value == "":
			rt.reportBypass(r)
			d.kind, d.body = passRead, body.give()
			return id, false
		case rt.nestedRequest(r, d.id, d):
			if d.kind == pass {
				d.kind, d.body = passRead, body.give()
			}
			return id, false
		}
	}
	id, err := rt.set.identify(r, body.bytes)
	if err != nil {
		d.refuseFor(err, problem.FingerprintFailed)
		return id, false
	}
	rt.versions.add(id.Fingerprint[0])
	return id, true
}

// isNested reports whether a request meets this guard inside its own run, which holds its key
// already. It comes before every refusal: by what this guard demands besides, the run would
// be refused in the middle.
func (rt *route) isNested(r *http.Request, values []string, d *decision) bool {
	if len(values) == 0 {
		return false // and no look at the context, for requests without a key
	}
	if _, ok := FromContext(r.Context()); !ok {
		return false
	}
	value, _, err := keyFromHeader(values, false)
	if err != nil {
		return false
	}
	scope, err := rt.scopeOf(r)
	return err == nil && rt.nestedRequest(r, intent.Key{Scope: scope, Value: value}, d)
}

func (rt *route) nestedRequest(r *http.Request, id intent.Key, d *decision) bool {
	nested, err := rt.passesNested(r.Context(), id, r.Method, rt.set.routeOf(r))
	if err != nil {
		d.refuseFor(err, problem.Misplaced)
	}
	return nested || err != nil
}

// passesNested reports whether a run that ctx belongs to holds the key, and says so. It fails if settings of this
// guard would be lost.
func (rt *route) passesNested(ctx context.Context, id intent.Key, method, label string) (bool, error) {
	op, ok := engine.FromContext(ctx)
	if !ok {
		return false, nil
	}
	name := id.Name()
	holder := op.Holder(rt.engine.Store(), name)
	if holder == nil {
		return false, nil
	}
	if err := rt.set.rules.Whole.(*settings).within(holder.Rules().Whole.(*settings)); err != nil {
		holder.Disturb()
		return false, err
	}
	rt.set.rules.Reporter.Observe(ctx, event.Event{
		Kind: event.Nested, Record: name, Scope: id.Scope, OperationID: op.IntentID(), Method: method, Route: label,
	})
	return true, nil
}

// reportBypass reports a request without a key, on a route that does not require one.
func (rt *route) reportBypass(r *http.Request) {
	if rt.set.rules.Reporter.Heard() {
		rt.set.rules.Reporter.Observe(r.Context(), event.Event{Kind: event.Bypassed, Method: r.Method, Route: rt.set.routeOf(r)})
	}
}

// readKey reads the key from the values of its header field. It reports whether there is one.
func (rt *route) readKey(values []string, d *decision) (present bool) {
	key, present, err := keyFromHeader(values, rt.set.strictKeys)
	switch {
	case err != nil:
		d.refuse(problem.KeyInvalid)
		d.problem.Detail = err.Error()
	case present:
		d.id.Value = key
		d.echo = values[0]
	}
	return present
}

func (rt *route) readScope(r *http.Request, d *decision) {
	var err error
	d.id.Scope, err = rt.scopeOf(r)
	switch {
	case errors.Is(err, ErrUnauthenticated):
		d.refuseFor(err, problem.Unauthenticated)
	case err != nil:
		d.refuseFor(err, problem.ScopeUnresolved)
	}
}

var errLongKey = fmt.Errorf("idempotency: the key function returned a key of more than %d bytes", intent.MaxKeyLen)

// deriveKey asks the route's KeyFunc.
func (rt *route) deriveKey(r *http.Request, body []byte, d *decision) {
	key, err := reread.Try(rt.set.keyFunc, r, body)
	switch {
	case err != nil:
		d.refuseFor(err, problem.KeyInvalid)
	case len(key) > intent.MaxKeyLen:
		d.refuseFor(errLongKey, problem.KeyInvalid)
	case key == "" && rt.set.required:
		d.refuse(problem.KeyMissing)
	default:
		d.id.Value = key
	}
	if d.problem.Code == problem.KeyInvalid {
		d.problem.Detail = "The request does not have the form that its idempotency key is taken from."
	}
}

// identify returns what a request is compared by. It reads the header once where the fingerprint is one of
// this package.
func (s *settings) identify(r *http.Request, body []byte) (id engine.Identity, err error) {
	d := digest.Read(digestRequest(r, body))
	defer d.Free()
	switch s.binding() {
	case policy.Exact:
		id.Fingerprint = d.Raw()
	case policy.JSON:
		id.Fingerprint = d.JSON()
	default:
		id.Fingerprint, err = reread.Try(s.fingerprint, r, body)
	}
	id.Sums = d.Checksums()
	return id, err
}
