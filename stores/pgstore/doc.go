// Package pgstore keeps the records of package idempotency in PostgreSQL, and commits them together
// with the rows of a program.
//
// # The guarantee
//
// In a run under [idempotency.WithTransaction], one COMMIT makes the rows of [Store.InTx] and the
// recorded answer durable, or neither. A retry gets the answer that was committed with the rows,
// wherever a process, a connection or the database has died in between.
//
// It holds for what is in that transaction. What is elsewhere, such as a mail or a charge at a
// provider, is a step ([idempotency.Step]), or a message in an outbox: a row of the same transaction
// that another program publishes. What a library commits in a transaction of its own is elsewhere, too.
//
// Without WithTransaction it is the durable store of a service that has PostgreSQL anyway: what a
// COMMIT has acknowledged survives crashes, and with synchronous replication failovers too.
package pgstore
