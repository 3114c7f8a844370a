// Package frameworks knows, of a few frameworks, how they call a handler of net/http that a guard stands
// around, and when they would answer or go on past it. A framework is known by its functions among the
// callers.
package frameworks

import (
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
)

// Why a guard cannot protect what is inside it. [errGin] is of a chain that goes on whatever the guard has
// answered: only Context.Abort prevents that, and the guard has no context. So the handler that a duplicate
// was refused for would run all the same. The others are of handlers whose answers the guard would not see:
// it would record an empty 200.
var (
	errGin   = errors.New("idempotency: a handler of gin calls the guard, which cannot keep gin from calling the next handler, nor see what that one answers: use module ginidempotency, or gin.WrapH for a handler of net/http that is the last one")
	errEcho  = errors.New("idempotency: a handler or middleware of echo calls the guard, and echo answers the errors of handlers when the guard is done, so the guard would record an empty 200: use module echoidempotency or echo4idempotency, or echo.WrapHandler for a handler of net/http")
	errAfter = errors.New("idempotency: no handler is left in the chain of the framework after the middleware of the guard: the program, or generated code, calls it as a function, and the handler would run unprotected: put the middleware into the chain of the router, with Use or in a group")
	errFiber = errors.New("idempotency: the adaptor of fasthttp calls the guard, by adaptor.HTTPHandler or adaptor.HTTPMiddleware of fiber: it passes on what has arrived of a body that broke off, as if that were all, and HTTPMiddleware calls fiber's handlers when the guard is done: use module fiberidempotency in front of adaptor.HTTPHandler")
)

// A Place is where a guard stands in a framework. It is immutable.
type Place struct {
	// Err says why the guard cannot protect its handler there; nil if it can.
	Err error
	// GoesOn says that the framework calls the next handler although the guard has answered.
	GoesOn bool
	// Late says that the framework may answer by a writer of its own, so that silence tells nothing.
	Late bool
	// Same says that the same handler is in this place on each call.
	Same bool
}

var (
	fine    = &Place{Same: true}
	late    = &Place{Late: true, Same: true}
	inGin   = &Place{Err: errGin, GoesOn: true}
	inEcho  = &Place{Err: errEcho}
	adapted = &Place{Err: errFiber}
	after   = &Place{Err: errAfter, Same: true}
	open    = &Place{} // nothing tells
)

// Serve calls the handler of a guard from a middleware of this repository, which knows its framework.
// [Spot.Place] finds it among the callers.
//
//go:noinline
func Serve(h http.Handler, w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }

// ServeAfter is [Serve] for a middleware after which no handler is left. Such a handler of a guard refuses requests
// with a key as misplaced.
//
//go:noinline
func ServeAfter(h http.Handler, w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }

var (
	nameOfServe      = runtime.FuncForPC(reflect.ValueOf(Serve).Pointer()).Name()
	nameOfServeAfter = runtime.FuncForPC(reflect.ValueOf(ServeAfter).Pointer()).Name()
)

// A Spot is what is known of the place of one handler. It is safe for concurrent use.
type Spot struct{ known atomic.Pointer[Place] }

// Around returns the spot of a guard that its caller is about to put around a handler. adaptor.HTTPMiddleware of
// fiber makes its middleware anew for each request, so that it is among the callers.
func Around() *Spot {
	s := &Spot{}
	p := nearest(func(function, file string) *Place {
		switch {
		case !of("gofiber/fiber", function, file):
			return nil
		case strings.Contains(function, ".HTTPMiddleware."):
			return adapted
		default: // a handler of the program, whatever middleware it is in
			return open
		}
	})
	if p != open {
		s.known.Store(p)
	}
	return s
}

// Place returns the place of the handler that calls it, and writes to w. It is looked for once, unless it
// may be another one on each call.
func (s *Spot) Place(w http.ResponseWriter) *Place {
	if p := s.known.Load(); p != nil {
		return p
	}
	p := placeOf(w)
	if p.Same {
		s.known.Store(p)
	}
	return p
}

// placeOf returns the place of a guard that writes to w. The nearest caller that belongs to a framework
// decides. A framework's own adapter for a handler of net/http makes it the last
// handler, and everything that it answers goes to the guard.
func placeOf(w http.ResponseWriter) *Place {
	_, ofGin := w.(interface{ WriteHeaderNow() })
	p := nearest(func(function, file string) *Place {
		switch {
		case function == nameOfServe, strings.Contains(function, ".WrapH."), strings.Contains(function, ".WrapF."):
			return fine
		case function == nameOfServeAfter:
			return after
		case strings.HasSuffix(function, ".(*Context).Next") && (ofGin || of("gin-gonic/gin", function, file)):
			return inGin
		case of("labstack/echo", function, file):
			if strings.Contains(function, ".WrapHandler.") {
				return fine
			}
			return inEcho
		case of("/fasthttpadaptor", function, file):
			return adapted
		case of("kataras/iris", function, file):
			return late
		default:
			return nil
		}
	})
	switch { // the writer tells where a framework's handler calls the guard in another goroutine
	case p != nil:
		return p
	case ofGin:
		return inGin
	case isEchos(w):
		return inEcho
	default:
		return fine
	}
}

// of reports whether a function belongs to a package. The file tells the package of a closure whose
// function was inlined.
func of(path, function, file string) bool {
	return strings.Contains(function, path) || strings.Contains(file, path)
}

func isEchos(w http.ResponseWriter) bool {
	t := reflect.TypeOf(w)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Name() == "Response" && strings.Contains(t.Elem().PkgPath(), "labstack/echo")
}

// nearest returns the place that the nearest caller tells of which one does, or nil.
func nearest(place func(function, file string) *Place) *Place {
	var callers [128]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if p := place(frame.Function, frame.File); p != nil {
			return p
		}
	}
	return nil
}
