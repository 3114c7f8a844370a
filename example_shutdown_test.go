package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency"
)

// shutdown ends server and guard together. Close the store when it has returned.
func shutdown(server *http.Server, guard *idempotency.Guard) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- guard.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-recorded)
}

func ExampleGuard_Shutdown() {
	guard := guardFor()
	server := &http.Server{Handler: guard.Handler(http.HandlerFunc(charge))}

	fmt.Println(shutdown(server, guard))
	send(server.Handler, "key-1", "{}")
	// Output:
	// <nil>
	// 503 shutting-down
}
