// Package modeltest compares the stores with a model of their contract.
//
// Package storetest has a test for each rule of the contract that somebody thought of.
// Here the rules are one small function. It takes a record and a call, and returns the results
// that the call may have. The tests make random calls, and so find consequences of several
// rules together that nobody thought of. They do so in two ways:
//
//   - With one caller and a controlled clock, the store must show what the model shows after
//     each call, to the nanosecond. A failing sequence is cut down to a short one. The clocks of
//     databases cannot be stopped, so there a caller lets time pass in minutes.
//   - With many callers at once, calls are lost on the way there or back and sent again. Their
//     results must be linearizable: the model must give the same results in some order that
//     fits the moments at which the calls began and ended. The moments also bound which leases
//     may have ended.
//
// The tests also prove that they find bugs: they must catch stores with a known bug every time.
//
// The package has only tests. It is a module of its own, so that nobody who imports the library
// inherits its requirements. A failure prints its seed. SEED=n in the environment makes the same
// choices again. That repeats a failure of one caller exactly, and a failure of many callers
// with some luck.
package modeltest
