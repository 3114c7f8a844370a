// Package storetest is the contract of [store.Store] as tests.
//
// A type that passes [Run] is a store. To test your own, call Run with a [Harness] that says how
// to make a fresh store and how to let time pass on its clock:
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
// A store that lives in this process and uses the time package runs inside a bubble of
// testing/synctest, as above, where an hour passes at once. A store that talks to a server
// over a network cannot do that. Leave Bubble unset, and let time pass on the server: move
// the server's clock, or make every stored deadline earlier.
//
// Each behaviour is a subtest with its name. The kit tests the optional interfaces
// ([store.ContextStore], [store.Watcher], [store.StepStore],
// [store.Inspector], [store.Lister], [store.Finder], [store.TxStore]) that the store has, and reports
// the cases of the others as skipped. How to begin a transaction of a TxStore is for the Harness to say.
//
// The cases tell moments apart by two seconds or more. The time that passes on a real
// server while a case runs does not matter. The kit does not test what a store does when
// it is full, loses its connection, or is restarted. Test that in the store's own tests.
package storetest
