//go:build findings

package main

import (
	"context"

	"example.com/idempotency"
)

// found returns what is found by a version whose Find returns Findings.
func found(ctx context.Context, g *guard, f idempotency.Finding) ([]idempotency.RecordInfo, error) {
	page, err := g.Find(ctx, f)
	return page.Records, err
}
