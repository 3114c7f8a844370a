package client

import (
	"context"
	"time"
)

// This file lets one request have limits of its own.

// Limits are those of one request, in place of the settings of its [Transport]. A zero
// member leaves the setting as it is.
type Limits struct {
	// Attempts is how often the request is sent at most; see [WithAttempts]. More than 100
	// count as 100.
	Attempts int
	// Timeout is how long all attempts and pauses may take together; see [WithTimeout].
	Timeout time.Duration
	// AttemptTimeout is how long one attempt may take; see [WithAttemptTimeout].
	AttemptTimeout time.Duration
}

type limitsContext struct{}

// WithLimits returns a context whose requests have limits of their own. Negative members
// count as zero.
func WithLimits(ctx context.Context, l Limits) context.Context {
	return context.WithValue(ctx, limitsContext{}, l)
}

// limitsOf returns the limits of a request.
func (s *settings) limitsOf(ctx context.Context) Limits {
	all := Limits{Attempts: s.attempts, Timeout: s.timeout, AttemptTimeout: s.attemptTimeout}
	own, ok := ctx.Value(limitsContext{}).(Limits)
	if !ok {
		return all
	}
	if own.Attempts > 0 {
		all.Attempts = min(own.Attempts, maxAttempts)
	}
	if own.Timeout > 0 {
		all.Timeout = own.Timeout
	}
	if own.AttemptTimeout > 0 {
		all.AttemptTimeout = own.AttemptTimeout
	}
	return all
}
