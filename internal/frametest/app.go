package frametest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// The program behind each server: what handlers ask, and what it remembers of them.

// The routes of each server. The colon marks a parameter; frameworks have their own signs for it.
//
//	POST, PATCH, GET /reply/:name   answers the Reply that Begin returns
//	POST /error/:name               returns an error with the Reply's status and body, in the way
//	                                of the framework; a plain error if the status is 0
//	POST /panic/:name               writes the Reply's body, if it has one, and panics with Panic
//	POST /stream/:name              writes and flushes the Chunks, with Pause after each; then fails
//	                                with the status, if set
//	POST /request/:name             answers what it sees of the request, as Seen in JSON
//	POST /form                      answers the values "a" and "b" of a form, and the file "f"
//	POST /bind                      binds a body {"amount": int}, and answers 201 with it in JSON
//	POST /held/:name                as /reply, under Hold
//	POST /required/:name            as /reply, under WithRequired
//
// Outside the guard, each server authenticates by the field [TenantHeader], and adds a field
// X-Request-Id with [App.RequestID], puts [WithOuter] into the context, and a field Vary: Origin to each answer. A request without a
// tenant is not refused there.

// TenantHeader is the field that tells who sends a request.
const TenantHeader = "X-Tenant"

// A Reply is what a handler is to do.
type Reply struct {
	Status  int
	Header  http.Header
	Body    string
	Trailer http.Header
	// Outer is what the handler adds to the header of outer handlers, as one does that saves a session.
	Outer  http.Header
	Chunks []string
	Panic  any

	pause chan struct{}
}

// Pause waits, after a chunk of a stream, until the client has read it, where the test demands that.
func (r Reply) Pause() {
	if r.pause != nil {
		<-r.pause
	}
}

// Seen is what a handler sees of a request.
type Seen struct {
	Method, Path, Name, Query, Cookie, Type, Agent string
	Many                                           []string // the field X-Many
	Length                                         int64
	Body                                           string
}

// A run is one call of a handler.
type run struct {
	protected bool
	scope     string
	attempt   int
}

// An App is the program behind one server.
type App struct {
	mu       sync.Mutex
	runs     map[string][]run
	requests int
	replies  map[string]Reply
	entered  chan struct{}
	release  chan struct{}
	pause    chan struct{}
}

func newApp(cases []Case) *App {
	a := &App{
		runs: map[string][]run{}, replies: map[string]Reply{},
		entered: make(chan struct{}, 1), release: make(chan struct{}),
	}
	for _, c := range cases {
		a.replies[c.Name] = c.Reply
	}
	done := Reply{Status: http.StatusCreated, Header: typed("text/plain"), Body: "done"}
	a.replies[slow], a.replies["scope"] = done, done
	a.pause = make(chan struct{})
	a.replies["paused"] = Reply{Header: typed("text/plain"), Chunks: []string{"one", "two", "three"}, pause: a.pause}
	return a
}

type outerKey struct{}

// WithOuter returns a context in which handlers find how to add to the header of outer handlers.
func WithOuter(ctx context.Context, add func(name, value string)) context.Context {
	return context.WithValue(ctx, outerKey{}, add)
}

// Begin is what each handler calls first, with the context in which the framework's handlers
// look for values, and with the name in its path, or the path without one. It returns what to
// answer.
func (a *App) Begin(ctx context.Context, name string) Reply {
	name = strings.Clone(name) // fiber uses its memory again
	r := run{}
	if op, ok := idempotency.FromContext(ctx); ok {
		r = run{true, op.Key().Scope, op.Attempt()}
	}
	a.mu.Lock()
	a.runs[name] = append(a.runs[name], r)
	reply, again := a.replies[name], len(a.runs[name]) > 1
	a.mu.Unlock()
	switch {
	case name == slow && !again: // a second run is a mistake that is found later
		a.entered <- struct{}{}
		<-a.release
	case name == "panic":
		panic("a bug")
	}
	for name, values := range reply.Outer {
		add, _ := ctx.Value(outerKey{}).(func(name, value string))
		for _, value := range values {
			add(name, value)
		}
	}
	return reply
}

// RequestID returns another value for each request.
func (a *App) RequestID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests++
	return strconv.Itoa(a.requests)
}

func (a *App) runsOf(name string) []run {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[name]
}

// slow is the name of the handler that answers when it is told to.
const slow = "slow"

// events collects the events of a guard.
type events struct {
	mu  sync.Mutex
	all []event.Event
}

func (e *events) observe(_ context.Context, ev event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) list() []event.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}
