// Package wiretest proves how a guard behind net/http handles real clients and middleware: bytes
// that break every rule, keys and targets in all spellings, bodies that drip, lie or are huge, a
// thousand connections that wait, Go's own client, which sends requests again, and middleware
// and proxies on both sides of the guard.
package wiretest
