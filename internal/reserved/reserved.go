// Package reserved names the scopes that this library chooses itself, for webhooks, messages and tools.
//
// Each begins with a zero byte. A guard refuses such a scope from a function of the program, because a
// caller could have chosen it as a user name and would share records with the library's own.
package reserved

import (
	"context"
	"strings"
)

const mark = "\x00"

// Scope returns the scope that a module has for a name. Scopes of two modules, or of two names, differ.
func Scope(module, name string) string { return mark + module + mark + name }

// Is reports whether no caller may have the scope.
func Is(scope string) bool { return strings.HasPrefix(scope, mark) }

type scopeKey struct{}

// With returns a context whose request may have a reserved scope: a module has found out that it is
// the request's.
func With(ctx context.Context, scope string) context.Context {
	return context.WithValue(ctx, scopeKey{}, scope)
}

// In returns the reserved scope that the request of ctx may have, or an empty string.
func In(ctx context.Context) string {
	scope, _ := ctx.Value(scopeKey{}).(string)
	return scope
}
