// Package clienttest has the tests of package client together with the retrying clients
// and the circuit breaker that it is made to work with, in a module of its own so that
// nobody else depends on them.
package clienttest
