// Package peers tests servers with package conform: examples of this library, a handler without
// protection, and middleware of others. Its test writes docs/reference/conformance.md.
//
// It is a module of its own, so that nobody inherits its requirements.
package peers
