//go:build !no_tags && !findings

package main

import (
	"context"

	"example.com/idempotency"
)

// found returns what is found.
func found(ctx context.Context, g *guard, f idempotency.Finding) ([]idempotency.RecordInfo, error) {
	records, _, err := g.Find(ctx, f)
	return records, err
}
