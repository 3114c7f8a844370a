package main

import (
	"testing"

	"example.com/idempotency/examples/routers/shop/shoptest"
)

func TestRoutesHaveTheirOwnTTL(t *testing.T) {
	shoptest.RequireTTLs(t, routes)
}
