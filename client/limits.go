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

// maxAttempts bounds [WithAttempts] and Limits.
const maxAttempts = 100

type limitsContext struct{}

// WithLimits returns a context whose requests have limits of their own. Negative members
// count as zero.
func WithLimits(ctx context.Context, l Limits) context.Context {
	return context.WithValue(ctx, limitsContext{}, l)
}

// in returns the limits of a request with the given context.
func (l Limits) in(ctx context.Context) Limits {
	own, _ := ctx.Value(limitsContext{}).(Limits)
	if own.Attempts > 0 {
		l.Attempts = min(own.Attempts, maxAttempts)
	}
	if own.Timeout > 0 {
		l.Timeout = own.Timeout
	}
	if own.AttemptTimeout > 0 {
		l.AttemptTimeout = own.AttemptTimeout
	}
	return l
}
