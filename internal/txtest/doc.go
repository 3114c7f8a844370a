// Package txtest proves what a guard promises of runs that join a transaction: however handler,
// commit and store fail, the rows and the record are there together or not at all, and no client
// is told otherwise. It has tests only.
package txtest
