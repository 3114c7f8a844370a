// Package clienttest tests package client together with the retrying clients and the circuit
// breaker that it is made to work with. It is a module of its own, so that nobody else depends
// on them.
package clienttest
