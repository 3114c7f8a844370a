// Package pgfaults proves what a run leaves in PostgreSQL when an API process, a backend or a
// connection dies at any of its round trips: one business row for each key, and an answer that
// tells of that row.
package pgfaults
