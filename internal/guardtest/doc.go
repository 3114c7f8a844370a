// Package guardtest is what the tests of the library share: guards on stores that fail as
// a test says, the handlers behind them, clients on several transports, and the checks of
// what these clients are told.
//
//   - transport.go: a handler behind a recorder, HTTP/1.1 or HTTP/2, and its client
//   - call.go: one request, its answer, and what an answer must look like
//   - handler.go: handlers that count their runs
//   - guard.go, process.go: a guard; a guard that shares a store with others
//   - faultstore.go, fault.go: a store between a guard and its store, and what it does
//   - store.go, sealer.go: stores and sealers that alter, spy or fail
//   - fate.go: what a run that ended in some way means for the next request
//   - witness.go: what a client sees, and when
//   - events.go: what a guard reports
//   - redis.go: clients, stores and servers of Redis
//   - main.go: the check for goroutines that are left behind
package guardtest
