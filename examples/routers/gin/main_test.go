package main

import (
	"testing"

	"github.com/gin-gonic/gin"

	"example.com/idempotency/examples/routers/shop/shoptest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode)
	m.Run()
}

func TestRoutesHaveTheirOwnTTL(t *testing.T) {
	shoptest.RequireTTLs(t, routes)
}
