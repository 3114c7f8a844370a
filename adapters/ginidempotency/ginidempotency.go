// Package ginidempotency makes a gin middleware of a guard of package idempotency.
//
// A guard around the whole engine needs no module: guard.Handler(engine) is an http.Handler. This
// package is for guards of single routes and groups, behind gin's own authentication.
//
// Middleware outside the guard sees every request, and none of it is recorded: gin.Recovery,
// request IDs, CORS, authentication. Middleware that answers for handlers, from what they leave in
// Context.Errors for example, stands inside, after [Middleware].
package ginidempotency

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"example.com/idempotency"
	"example.com/idempotency/internal/frame"
	"example.com/idempotency/internal/frameworks"
)

// Middleware returns a middleware that protects the handlers after it, on a route or a group:
//
//	r.POST("/charges", ginidempotency.Middleware(guard), charge)
//	r.Group("/payouts", ginidempotency.Middleware(guard.With(idempotency.WithRecovery(idempotency.Hold))))
//
// In a handler, the run is found with idempotency.FromContext(c.Request.Context()). Steps and
// transactions need that context, too; c leads to the run as well, without its deadline. Events name
// the route by the pattern of gin, "POST /charges/:id", unless idempotency.WithRoute names it.
// During a run, Context.Writer writes into the record, and Hijack is refused.
//
// A handler that writes nothing answers with the status of the context, as ever, and is not reported:
// idempotency.WithSilence does not apply. But if it has
// left an error in Context.Errors, a middleware outside is about to answer, too late for the
// record. Then the outcome of the run is idempotency.Unknown and the guard reports it as an
// event.Silent, which is also logged. The fix is to put that middleware inside. So is an
// answer of Engine.HandleContext, which gives the context a writer past the guard: its retries are
// refused.
//
// The middleware stands in the chain of the router: in Use, a group or a route. Called as a function, as the
// option Middlewares of oapi-codegen's gin server does, it cannot protect the handler that runs when it has returned. Where
// no handler is left in the chain of a route, it refuses requests with a key with 500 problem.Misplaced.
//
// The router's own answers, 404 and 405, are not recorded. Middleware panics if guard is nil.
func Middleware(guard *idempotency.Guard) gin.HandlerFunc {
	if guard == nil {
		panic("ginidempotency: Middleware: nil guard")
	}
	// Here, only errors that wait for an answer are silence.
	guard = guard.With(idempotency.WithSilence(idempotency.Unknown))
	h, last := guard.Handler(http.HandlerFunc(next)), guard.Handler(http.HandlerFunc(next))
	gate := frame.NewGate(guard)
	return func(c *gin.Context) {
		if gate.Passes(c.Request, func() (context.Context, string) {
			return frame.With(c.Request.Context(), &exchange{c: c}), frame.Pattern(c.Request, c.FullPath())
		}) {
			c.Next()
			return
		}
		x := &exchange{c: c, writer: c.Writer, outside: c.Request, looks: gate.OnlyLooks}
		r := frame.Request(c.Request, x, c.FullPath())
		x.request = r
		w := &outer{ResponseWriter: c.Writer, size: c.Writer.Size()}
		if isLast(c) {
			frameworks.ServeAfter(last, w, r)
		} else {
			frameworks.Serve(h, w, r)
		}
		if !x.ran {
			// The guard has answered. Without this, gin would call the next handler.
			c.Abort()
		}
		if !x.ran || x.sent {
			// Middleware outside must not answer in its place, as it could not without a guard.
			x.writer.WriteHeaderNow()
		}
	}
}

// An exchange is a request on its way through a guard.
type exchange struct {
	c       *gin.Context
	writer  gin.ResponseWriter // outside the guard
	outside *http.Request      // likewise
	request *http.Request      // as the guard gets it
	run     context.Context    // that the handlers get
	looks   bool               // the guard has idempotency.WithShadow
	ran     bool
	sent    bool // the handlers have let their status out
}

// Run lets idempotency.FromContext find the run by a gin.Context, which generated code takes for a context.Context.
func (x *exchange) Run() context.Context { return x.run }

// next calls the handlers after the guard.
func next(w http.ResponseWriter, r *http.Request) {
	x, _ := frame.From[*exchange](r.Context())
	x.ran, x.run = true, r.Context()
	c := x.c
	c.Request = r
	outer, _ := c.Get(frame.Mark)
	c.Set(frame.Mark, x)
	// Deferred, because after a panic an outer middleware answers.
	defer func() {
		if x.lost() {
			return
		}
		c.Set(frame.Mark, outer)
		c.Request, c.Writer = x.outside, x.writer
		frame.HandBack(x.outside, x.request)
	}()
	if r == x.request { // the guard has nothing to do with it
		c.Next()
		return
	}
	if x.looks {
		x.look(w)
		return
	}
	op, ok := idempotency.FromContext(r.Context())
	inner := newWriter(w, x.writer.Status())
	if !ok { // nobody keeps the header back
		inner.commit = x.writer.WriteHeaderNow
	}
	c.Writer = inner
	failed, size := len(c.Errors), x.writer.Size()
	c.Next()
	switch {
	case x.lost():
		frame.Lost(r)
		return
	case inner.Written():
		x.sent = true
	case x.writer.Size() != size: // Engine.HandleContext has answered with a writer of its own
		if o := idempotency.DefaultOutcome(x.writer.Status(), x.writer.Header()); ok && o != idempotency.Final {
			op.SetOutcome(o) // nothing was done, or nobody knows: the answer that is not kept was no definite one
		}
		return
	case inner.set: // and not sent
	case c.FullPath() == "":
		// gin is about to answer 404 or 405, past a writer that compresses.
		inner.Header().Del("Content-Encoding")
		if ok {
			op.SetOutcome(idempotency.NotExecuted)
		}
		return
	case len(c.Errors) > failed:
		return
	}
	// A handler may have set only a status, or nothing. gin does this too, but for its own writer.
	if inner.set {
		inner.WriteHeaderNow()
	} else {
		frameworks.StandIn(inner.WriteHeaderNow)
	}
}

// lost reports whether gin has given the context to another request. Engine.HandleContext clears the values
// too, and keeps the request.
func (x *exchange) lost() bool {
	if of, _ := x.c.Get(frame.Mark); of == any(x) {
		return false
	}
	of, _ := frame.From[*exchange](x.c.Request.Context())
	return of != x
}

// look calls the handlers beside a guard that only looks on. Everything goes to their own writer.
func (x *exchange) look(w http.ResponseWriter) {
	c := x.c
	noted := &notingWriter{ResponseWriter: x.writer, tap: w.(frame.Tap)}
	c.Writer = noted
	failed := len(c.Errors)
	c.Next()
	if !noted.Written() && c.FullPath() == "" {
		noted.tap.Judge(uint8(idempotency.NotExecuted)) // gin is about to answer 404 or 405
	}
	if noted.Written() || c.FullPath() == "" || len(c.Errors) == failed {
		noted.tap.Note(noted.Status(), nil)
	}
}

// Context returns the gin context of a request that a [Middleware] has handed to its guard. The
// functions of the guard, for keys, fingerprints and refusals for example, get such requests. One that is given the
// body gets a copy of the context, which reads that body: its PostForm leaves the handler's alone. The
// context must not be used once the request has been answered.
func Context(ctx context.Context) (*gin.Context, bool) {
	x, ok := frame.From[*exchange](ctx)
	if !ok {
		return nil, false
	}
	if again, ok := frame.Again(ctx); ok {
		c := x.c.Copy()
		c.Request = again
		return c, true
	}
	return x.c, true
}

// Scope returns the scope function of a guard that reads the caller off the gin context, where
// the authentication has left it:
//
//	idempotency.New(store, ginidempotency.Scope(func(c *gin.Context) (string, error) {
//		return c.GetString("tenant"), nil
//	}))
//
// An empty scope is refused. So is a request that has not come through [Middleware].
func Scope(f func(*gin.Context) (string, error)) idempotency.ScopeFunc {
	return frame.Scope("ginidempotency", "gin", Context, f)
}

// User is an argument of [Scope]: the user whom gin.BasicAuth has verified, under gin.AuthUserKey.
// Without one, the request is refused as unauthenticated.
func User(c *gin.Context) (string, error) {
	user, _ := c.Value(gin.AuthUserKey).(string)
	if user == "" {
		return "", idempotency.ErrUnauthenticated
	}
	return user, nil
}
