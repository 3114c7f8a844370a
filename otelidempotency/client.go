package otelidempotency

import (
	"context"

	"example.com/idempotency/client"
)

// This file counts what the client half does.

// ObserveClient returns the option that makes a client.Transport count its attempts, by what
// their answers mean, and the requests that it gives up, by the reason. No metric has the host
// in its attributes: give each API a meter provider with a resource of its own, if you need to
// tell them apart.
//
// The spans of attempts are those of the transport inside, such as that of otelhttp.
func ObserveClient(opts ...Option) (client.Option, error) {
	c := newConfig(opts)
	f := factory{meter: c.meter()}
	o := &clientObserver{clientCounters: newClientCounters(&f)}
	if err := f.err(); err != nil {
		return nil, err
	}
	o.begin()
	return client.WithObserver(o.observe), nil
}

type clientObserver struct {
	clientCounters
	made measurements
}

// reasons are why a request is given up. An attempt whose outcome no retry changes is one.
var reasons = []client.Reason{
	client.ReasonSettled, client.ReasonAttempts, client.ReasonTimeout, client.ReasonContext,
	client.ReasonBudget, client.ReasonBreaker, client.ReasonTTL, client.ReasonUnproven,
}

// begin makes the counters whose first increase must be seen.
func (o *clientObserver) begin() {
	for _, reason := range reasons {
		o.gaveUp.Add(context.Background(), 0, o.made.of(labels{name: keyReason, value: string(reason)}).add...)
	}
}

func (o *clientObserver) observe(ctx context.Context, e client.Event) {
	switch e.Kind {
	case client.EventAttempt:
		l := labels{name: keyVerdict, value: e.Verdict.String(), method: methodOf(e.Method)}
		o.attempts.Add(ctx, 1, o.made.of(l).add...)
	case client.EventGaveUp:
		o.gaveUp.Add(ctx, 1, o.made.of(labels{name: keyReason, value: string(e.Reason)}).add...)
	}
}
