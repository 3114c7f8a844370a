package idempotency

import (
	"context"
	"slices"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/hook"
	"example.com/idempotency/problem"
)

// Hook is for package adapter, which says what authors of adapters can do with a guard.
func (g *Guard) Hook() hook.Guard { return hooked{g} }

// A hooked is a guard as package adapter sees it.
type hooked struct{ guard *Guard }

func (h hooked) OnlyLooks() bool { return h.guard.shadow != nil }

func (h hooked) PassesNested(ctx context.Context, scope, key string) bool {
	return h.guard.route.passesNested(ctx, intent.Key{Scope: scope, Value: key}, "", h.guard.route.set.rules.Route)
}

func (h hooked) ReportRefused(ctx context.Context, scope string, code problem.Code, cause error) {
	h.report(ctx, event.Event{Kind: event.Refused, Scope: scope, Code: code, Err: cause})
}

func (h hooked) ReportBypassed(ctx context.Context) {
	h.report(ctx, event.Event{Kind: event.Bypassed})
}

func (h hooked) report(ctx context.Context, e event.Event) {
	r := &h.guard.route.set.rules
	e.Route = r.Route
	if h.OnlyLooks() {
		e.Kind, e.Would = event.Shadow, e.Kind
	}
	r.Reporter.Observe(ctx, e)
	if e.Kind == event.Refused && e.Err != nil {
		r.Reporter.Log(ctx, e) // nobody else has the error
	}
}

func (h hooked) Settings() hook.Settings {
	s := h.guard.route.set
	a := hook.Settings{Unrecorded: slices.Clone(s.dropped), ClientCancel: s.rules.ClientCancel}
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"WithKeyFunc", s.keyFunc != nil},
		{"WithAuthorizeReplay", s.authorizeReplay != nil},
		{"WithExpiryHeader", s.expiryHeader != ""},
		{"WithExplain", s.explain},
	} {
		if option.set {
			a.NeedHTTP = append(a.NeedHTTP, option.name)
		}
	}
	return a
}
