package guardtest

import (
	"context"

	"example.com/idempotency"
)

// Op is the run that a context belongs to.
func Op(ctx context.Context) *idempotency.Operation {
	op, _ := idempotency.FromContext(ctx)
	return op
}
