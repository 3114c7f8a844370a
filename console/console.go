// Package console is a handler of HTTP for the browser, in which the engineer on call sees what is held, reads
// what happened and what each decision would do, and decides. It needs no JavaScript, and shows the same as JSON
// to a client that accepts application/json.
//
// It shows what the command line idem shows, and decides by the guard of the service: with its sealer, so that
// sealed routes are settled too, and with its observers and its log, which hear who has decided and why.
//
// Mount it at any path that ends in a slash, with http.StripPrefix or without. Options.Authorize says who may
// see it and who may decide; without it, only a browser on the same machine sees it, and nobody decides.
package console

import (
	"errors"
	"net/http"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// Options are the settings of a console. The zero Options are good for development: whoever is on the same
// machine sees what is held, and nobody decides.
type Options struct {
	// Authorize says who a request comes from and what that person may do. It is called for each request,
	// before the store is asked anything. An error refuses the request: with 401 if it is
	// [idempotency.ErrUnauthenticated], with 503 if it is [idempotency.ErrTryLater], and with 403 otherwise. Its text is
	// not shown. Nil is [OnThisMachine].
	Authorize func(*http.Request) (Actor, error)
	// GuardOf returns the guard of a route, by the label that its records have: that of
	// [idempotency.WithRoute], or else the pattern. An answer needs the sealer of the route, and is kept for its TTL: where
	// GuardOf returns nil, nobody gives one, and the guard of [New] makes all other decisions. Nil, the default, stands for
	// that guard, unless it seals nothing and another guard that was made from it, or that it was made from, does: then
	// nobody gives an answer. All guards must have one store.
	GuardOf func(route string) *idempotency.Guard
	// Guards are further guards of the same records, made by [idempotency.New] apart from that of [New]: records are found and
	// erased with their secrets ([idempotency.WithDerivation]), too. Those that [idempotency.Guard.With] makes need not be named.
	Guards []*idempotency.Guard
	// Redact changes a recorded answer before it is shown to an actor with ReadAnswers. Nil, the default, shows
	// it as retries get it.
	Redact func(*Answer)
	// TraceURL returns where the trace of a span is shown, and "" if nowhere. Only addresses of http and
	// https become links. Nil, the default, shows the span as text.
	TraceURL func(event.TraceContext) string
}

// An Actor is a person who uses the console. The zero Actor may look, and is nobody.
type Actor struct {
	// Name is recorded with each decision, in the event and in the log. An Actor without a name does not decide.
	Name string
	// Decide lets the actor settle and forget records, erase tenants, and ask resolvers.
	Decide bool
	// ReadAnswers lets the actor see recorded answers, which may be private to the callers of the service.
	ReadAnswers bool
}

// An Answer is a recorded answer, as it is shown.
type Answer struct {
	// Record and Route are those of the record.
	Record, Route string
	// Status is 0 for the result of a function of [idempotency.Do], whose Body is as its codec encodes it.
	Status int
	Header http.Header
	Body   []byte
}

// New returns a console for the records of a guard's store. The store must be a [store.Inspector] and a
// [store.Lister], as all stores of this repository are: otherwise New returns [idempotency.ErrNoInspector] or
// [idempotency.ErrNoLister].
//
// The console asks the store only for what it shows: a page of held records, a record, some runs in flight, and for a second how
// many are held, by its index. Each request has 10 seconds for that.
func New(guard *idempotency.Guard, o Options) (http.Handler, error) {
	if guard == nil {
		return nil, errors.New("console: New: nil guard")
	}
	c := &console{Options: o, guard: guard, store: inspect.StoreOf(guard), origin: http.NewCrossOriginProtection(), now: time.Now}
	var ok bool
	if c.inspector, ok = c.store.(store.Inspector); !ok {
		return nil, idempotency.ErrNoInspector
	}
	all, ok := c.store.(store.Lister)
	if !ok {
		return nil, idempotency.ErrNoLister
	}
	c.lister = lister{all, &c.told.gate}
	if c.Authorize == nil {
		c.Authorize = OnThisMachine
	}
	return c, nil
}

type console struct {
	Options
	guard     *idempotency.Guard
	store     store.Store
	inspector store.Inspector
	lister    store.Lister
	origin    *http.CrossOriginProtection
	made      decisions[inspect.Decision]
	erased    decisions[inspect.Erased]
	told      told
	together  decisions[decided]
	now       func() time.Time
}

// patience is for how long a request waits for the store.
const patience = 10 * time.Second

// guardOf returns the guard that looks at records of a route.
func (c *console) guardOf(route string) *idempotency.Guard {
	if c.GuardOf != nil {
		if g := c.GuardOf(route); g != nil {
			return g
		}
	}
	return c.guard
}

// A visit is one request of an actor.
type visit struct {
	*console
	w     http.ResponseWriter
	r     *http.Request
	actor Actor
	known bool   // the actor has been let in
	base  string // from the address of this request to that of the first screen
}
