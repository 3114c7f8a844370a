// Package sqlitestore keeps the records of package idempotency in a SQLite database.
//
// It is the durable store of a program that runs on one machine and has nothing to operate. Any
// number of processes of that machine may share a database file.
package sqlitestore
