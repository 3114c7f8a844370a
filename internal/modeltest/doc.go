// Package modeltest compares the stores with a model of their contract.
//
// Package storetest has a test for each rule of [idempotency.Store], found by thinking.
// Here the rules are one small function from a record and a call to what the call may
// return and leave behind, and calls are made at random. That finds what follows from
// two rules together and nobody has thought of, in two ways:
//
//   - One caller, a controlled clock: after each call, and to the nanosecond, the store
//     has to show what the model shows. A failing sequence is cut down to a short one.
//   - Many callers at once, calls that are lost on the way there or back and sent again:
//     what they saw has to be linearizable, that is, explained by the model making the
//     calls in some order that fits the moments at which they began and ended. The
//     moments also bound which leases may have ended.
//
// What finds nothing has to prove that it would: stores with a known bug must be caught,
// every time.
//
// All of it is tests; the module exists so that nobody who imports the library
// inherits what they need. A failure prints its seed. SEED=n in the environment makes
// the same choices again; that repeats a failure exactly where there is one caller, and
// likely enough elsewhere.
package modeltest
