// Package pgstore keeps the records of package idempotency in PostgreSQL.
//
// It is the durable store of a service that has PostgreSQL anyway: what a COMMIT has
// acknowledged survives crashes, and with synchronous replication failovers too.
package pgstore
