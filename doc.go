// Package idempotency makes HTTP APIs safe to retry.
package idempotency
