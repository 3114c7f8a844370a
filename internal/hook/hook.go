// Package hook is how package adapter reaches a guard.
package hook

import (
	"context"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/problem"
)

// A Guard is what an adapter needs of a guard beside Do. Package adapter says what each method does.
// A route is the name of one, or empty for the label of the guard.
type Guard interface {
	OnlyLooks() bool
	Passes(method string, keyed bool) (passes, heard bool)
	ReportPassed(ctx context.Context, method, route string)
	PassesNested(ctx context.Context, route, scope, key string) (bool, error)
	ReportRefused(ctx context.Context, route, scope string, code problem.Code, cause error)
	ReportBypassed(ctx context.Context, route string, cause error)
	Settings() Settings
	// Engine is for package internal/inspect.
	Engine() *engine.Engine
}

// Options are the settings of a guard that package adapter can set.
type Options interface {
	TraceBy(f func(context.Context) event.TraceContext)
	TellCalls(f func(ctx context.Context, op string, took time.Duration))
}

// Settings are those of a guard that Do does not apply.
type Settings struct {
	KeyHeader    string
	Unrecorded   []string
	ClientCancel bool
	NeedHTTP     []string
}
