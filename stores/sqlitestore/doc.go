// Package sqlitestore keeps the records of package idempotency in a file of SQLite, and commits them
// together with the rows of a program. It needs no server. Any number of processes of one machine
// may share the file.
//
// # The guarantee
//
// In a run under [idempotency.WithTransaction], one commit makes the rows of [Store.InTx] and the
// recorded answer durable, or neither. A retry gets the answer that was committed with the rows,
// wherever the process has died in between. It holds for tables in the same file. What is elsewhere
// is a step ([idempotency.Step]), or a message in an outbox: a row of the same transaction that another
// program publishes.
//
// SQLite has one writer. From the begin of InTx until the handler has returned, no other request of
// the machine can be claimed or completed.
package sqlitestore
