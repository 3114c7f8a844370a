package adapter_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/event"
)

// A module that measures is told of each call of a store that is not memory.
func ExampleWithStoreCalls() {
	type distant struct{ *idempotency.MemoryStore } // any store but a MemoryStore itself
	guard, err := idempotency.New(distant{idempotency.NewMemoryStore()}, idempotency.SharedScope,
		adapter.WithStoreCalls(func(_ context.Context, op string, took time.Duration) { fmt.Println(op, took < time.Minute) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
	r.Header.Set("Idempotency-Key", "key-1")
	h.ServeHTTP(httptest.NewRecorder(), r)
	// Output:
	// claim true
	// complete true
}

// A replay leads to the trace of the run that made its answer.
func ExampleWithTraceContext() {
	current := byte(1) // a module asks its tracing library
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		adapter.WithTraceContext(func(context.Context) event.TraceContext {
			return event.TraceContext{TraceID: [16]byte{current}, SpanID: [8]byte{current}, Flags: 1}
		}),
		idempotency.WithObserver(func(_ context.Context, e event.Event) { fmt.Println(e.Kind, e.Trace) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
		r.Header.Set("Idempotency-Key", "key-1")
		h.ServeHTTP(httptest.NewRecorder(), r)
		current++
	}
	// Output:
	// run 00-01000000000000000000000000000000-0100000000000000-01
	// replay 00-01000000000000000000000000000000-0100000000000000-01
}
