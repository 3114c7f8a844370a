// Package wiretest proves what a guard does behind net/http with what clients and
// middleware really do: bytes that keep to no rule, keys and targets in all spellings,
// bodies that drip, lie or are huge, a thousand connections that wait, Go's own client,
// which sends requests again, and middleware on both sides of the guard.
package wiretest
