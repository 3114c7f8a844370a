package frameworks

import (
	"reflect"
	"runtime"
	"strings"
)

// StandIn calls f, which writes a status for a handler that has said nothing, as gin does. [Unsaid] finds it among the
// callers.
//
//go:noinline
func StandIn(f func()) { f() }

var nameOfStandIn = runtime.FuncForPC(reflect.ValueOf(StandIn).Pointer()).Name()

// Unsaid reports whether the status that is being written is not the handler's: the engine of gin sends one when all
// handlers have returned, and so does [StandIn].
func Unsaid() bool {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for callee, more := "", true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		switch {
		case frame.Function == nameOfStandIn:
			return true
		case strings.HasSuffix(frame.Function, ".(*Context).Next"): // a handler has sent it
			return false
		case strings.HasSuffix(frame.Function, ".(*Engine).handleHTTPRequest") && of("gin-gonic/gin", frame.Function, frame.File):
			return strings.HasSuffix(callee, ".WriteHeaderNow")
		}
		callee = frame.Function
	}
	return false
}
