// Package frameworks knows, of a few frameworks, how they call a handler of net/http that a guard stands
// around, and when they would answer or go on past it.
package frameworks

import (
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// Two frameworks have an adapter for middleware of net/http that calls their handlers, or answers
// their errors, when the middleware has returned. Around such a handler, a guard would record an
// empty 200.
var (
	errEcho  = errors.New("idempotency: echo.WrapMiddleware answers the errors of handlers when the guard is done, so the guard would record an empty 200: use module echoidempotency or echo4idempotency")
	errFiber = errors.New("idempotency: adaptor.HTTPMiddleware calls fiber's handlers when the guard is done, so the guard would record an empty 200: use module fiberidempotency")
)

// Misplaced returns why a guard cannot protect the handler, if it is that of such an adapter. It is known
// by the function that stands for the handler.
func Misplaced(next http.Handler) error {
	f, ok := next.(http.HandlerFunc)
	if !ok || f == nil {
		return nil
	}
	code := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	if code == nil {
		return nil
	}
	file, _ := code.FileLine(code.Entry()) // tells the package of a function that was inlined, too
	switch name := code.Name(); {
	case strings.Contains(name, "WrapMiddleware") && strings.Contains(name+file, "labstack/echo/"):
		return errEcho
	case strings.Contains(name, "HTTPMiddleware") && strings.Contains(name+file, "gofiber/fiber/"):
		return errFiber
	default:
		return nil
	}
}

// ErrGin says that a handler of gin's chain calls a guard. The next one of the chain follows it,
// whatever the guard has answered. Only Context.Abort prevents that, and the guard has no context. So
// the handler that a duplicate was refused for would run all the same.
var ErrGin = errors.New("idempotency: a handler of gin calls the guard, which cannot keep gin from calling the next handler, nor see what that one answers: use module ginidempotency, or gin.WrapH for a handler of net/http that is the last one")

// InGinChain reports whether a handler of gin's chain calls the caller, other than gin.WrapH and
// gin.WrapF. Those are the last of their chains, and write to the guard. An adapter tells by its
// writer, which has the method Bypassed, that it knows about the chain. always says that the next call
// of the same handler would get the same result.
func InGinChain(w http.ResponseWriter) (in, always bool) {
	if _, ok := w.(interface{ Bypassed() bool }); ok {
		return false, false
	}
	_, ofGin := w.(interface{ WriteHeaderNow() })
	var callers [128]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		name := frame.Function
		if strings.Contains(name, ".WrapH.") || strings.Contains(name, ".WrapF.") {
			return false, true
		}
		if strings.HasSuffix(name, ".(*Context).Next") && (ofGin || strings.Contains(frame.File, "gin-gonic/gin")) {
			return true, false
		}
	}
	return ofGin, !ofGin
}
