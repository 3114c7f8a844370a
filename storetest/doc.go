// Package storetest is the contract of [idempotency.Store] as tests.
//
// A store that passes [Run] is a store. Whoever writes one calls Run from a test and
// says in a [Harness] how to make a fresh store and how to let time pass on the
// store's clock:
//
//	func TestMyStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			New: func(testing.TB) (idempotency.Store, func(time.Duration)) {
//				return mystore.New(), time.Sleep
//			},
//			Bubble: synctest.Test,
//		})
//	}
//
// A store that lives in this process and reads the time with the time package runs
// inside a bubble of testing/synctest, as above, where an hour passes at once. A store
// that talks to a server over a network cannot: it leaves Bubble unset and lets time
// pass on its server, by moving the server's clock or by bringing forward every
// deadline that it has stored.
//
// Each behaviour is a subtest, named for it. The optional interfaces
// ([idempotency.ContextStore], [idempotency.Watcher], [idempotency.StepStore],
// [idempotency.Inspector]) are tested when the store has them and skipped, visibly, when
// it has not.
//
// The cases tell moments apart by two seconds and more, so that the time that passes
// on a real server while a case runs does not matter. They do not test what a store
// does when it is full, loses its connection, or is restarted: a store's own tests
// do.
package storetest
