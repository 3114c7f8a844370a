package otelidempotency_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"example.com/idempotency/client"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/problem"
)

func TestClientIsCounted(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	reporting, err := otelidempotency.ObserveClient(otelidempotency.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	require.NoError(t, err)
	require.EqualValues(t, 0, valuesOf(t, collect(t, reader)["idempotency.client.gave_up"])["idempotency.client.reason=attempts"])

	tries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries++; tries == 1 || r.URL.Path == "/never" {
			w.Header().Set(problem.Header, string(problem.StoreUnavailable))
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	transport, err := client.New(nil, reporting, client.WithAttempts(3), client.WithBackoff(time.Millisecond, time.Millisecond))
	require.NoError(t, err)
	c := &http.Client{Transport: transport}
	for _, path := range []string{"/charges", "/never"} {
		resp, err := c.Post(server.URL+path, "text/plain", strings.NewReader("1"))
		require.NoError(t, err, "the last refusal is the answer")
		require.NoError(t, resp.Body.Close())
	}

	all := collect(t, reader)
	attempts := valuesOf(t, all["idempotency.client.attempts"])
	require.EqualValues(t, 1, attempts["http.request.method=POST,idempotency.client.verdict=settled"])
	var sum int64
	for attributes, n := range attempts {
		require.NotContains(t, attributes, "127.0.0.1", "no host")
		sum += n
	}
	require.EqualValues(t, 5, sum)
	require.EqualValues(t, 1, valuesOf(t, all["idempotency.client.gave_up"])["idempotency.client.reason=attempts"])
}
