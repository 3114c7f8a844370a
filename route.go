package idempotency

import (
	"net/http"
	"sync"
	"sync/atomic"

	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/reserved"
)

// A route is what a guarded route knows: the engine that runs its handlers, the settings of its guard,
// and what that has in common with others. [Guard] stands above it.
type route struct {
	engine *engine.Engine
	set    *settings
	*common
}

// newRoute returns the route of a guard that New makes.
func newRoute(st Store, scope ScopeFunc, set *settings) *route {
	rt := newRouteBeside(st, scope, set)
	rt.beside = newRouteBeside(st, scope, set)
	return rt
}

func newRouteBeside(st Store, scope ScopeFunc, set *settings) *route {
	_, local := st.(*MemoryStore)
	c := &common{scope: scope, sharedScope: scope != nil && sameFunc(scope, SharedScope)}
	c.bodies.New = func() any { return new(bodyBuffer) }
	return &route{engine.New(st, local, set.waitingBytes, &set.rules), set, c}
}

// A common is what a guard shares with all guards made from it by With, beside the engine.
type common struct {
	scope ScopeFunc
	// sharedScope says that scope is SharedScope.
	sharedScope bool
	versions    versionSet // of the fingerprints that functions of the program make
	bodies      sync.Pool  // of *bodyBuffer
	// beside is the route of shadows: what they wait for must not use the limits of live guards up.
	beside  *route
	shadows atomic.Int64 // requests that are being looked at
}

// with returns the route of a guard with other settings.
func (rt *route) with(set *settings) *route {
	return &route{rt.engine.With(&set.rules), set, rt.common}
}

// scopeOf calls the guard's ScopeFunc. It refuses an empty scope, because an "anonymous"
// namespace would be shared by all callers that fail to authenticate, and a reserved one that neither
// SharedScope has returned nor a module has found to be the request's.
func (c *common) scopeOf(r *http.Request) (string, error) {
	form, post := r.Form, r.PostForm
	scope, err := c.scope(r)
	// What the function has parsed of the URL would keep the handler from parsing a form with files.
	if form == nil && r.Form != nil {
		r.Form = nil
	}
	if post == nil && r.PostForm != nil {
		r.PostForm = nil
	}
	switch {
	case err != nil:
		return "", err
	case scope == "":
		return "", errEmptyScope
	case reserved.Is(scope) && !c.sharedScope && scope != reserved.In(r.Context()):
		return "", errReservedScope
	}
	return scope, nil
}
