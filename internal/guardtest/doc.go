// Package guardtest is the kit that the tests of the library share: guards on stores that fail
// on demand, the handlers behind the guards, clients on several transports, and checks of the
// answers that these clients get.
//
//   - transport.go: a handler behind a recorder, HTTP/1.1 or HTTP/2, and its client
//   - call.go: one request, its answer, and what an answer must look like
//   - handler.go: handlers that count their runs
//   - guard.go, process.go: a guard; a guard that shares a store with others
//   - faultstore.go, fault.go: a store that stands before another one, and its faults
//   - limits.go: a store that works, but slowly, or not for values of every size
//   - store.go, sealer.go: stores and sealers that alter, spy or fail
//   - fate.go: how the end of one run decides the next request
//   - witness.go: the bytes that a client sees, and when
//   - events.go: the events that a guard reports
//   - redis.go: clients, stores and servers of Redis
//   - main.go: the check for goroutines that tests leave behind
package guardtest
