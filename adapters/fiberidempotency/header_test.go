package fiberidempotency_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/problem"
)

// fasthttp lets fields pass that net/http refuses. One that could be the key is refused here, and does not
// run unprotected. Those that are refused either way are here to tell when that changes.
func TestMalformedKeyFieldIsRefused(t *testing.T) {
	t.Parallel()
	guarded, _ := newGuard(t)
	runs := 0
	address, err := url.Parse(serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
		runs++
		return c.SendStatus(fiber.StatusCreated)
	}))
	require.NoError(t, err)
	for fields, ours := range map[string]bool{
		"Idempotency-Key : k\r\n":                       true,
		"idempotency-key   : \"k\"\r\n":                 true,
		"Idempotency-Key :\r\n":                         true,
		"Idempotency-Key : k\r\nIdempotency-Key: k\r\n": true,
		"Idempotency-Key: k\r\nIDEMPOTENCY-KEY : l\r\n": true,
		"Idempotency-Key\t: k\r\n":                      false,
		"Idempotency-Key\r\n":                           false,
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address.Host)
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /charges HTTP/1.1\r\nHost: api.test\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", fields)
		require.NoError(t, err)
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, reply.StatusCode, "%q", fields)
		if ours {
			require.Equal(t, string(problem.KeyInvalid), reply.Header.Get(problem.Header), "%q", fields)
		}
		require.NoError(t, reply.Body.Close())
		require.NoError(t, conn.Close())
	}
	require.Zero(t, runs)
}
