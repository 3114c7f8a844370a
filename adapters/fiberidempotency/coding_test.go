package fiberidempotency_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// fiber decompresses a form by itself. The bytes that are not decompressed show one boundary, between
// which there is nothing, and hide a form for each payee.
func TestCompressedFormDoesNotHideThePayee(t *testing.T) {
	form := func(t *testing.T, boundary string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Comment = "\r\n--" + boundary + "\r\n\r\n\r\n--" + boundary + "--\r\n"
		for _, name := range []string{"alice", "bob"} {
			_, err := fmt.Fprintf(w, "--%s\r\nContent-Disposition: form-data; name=\"payee\"\r\n\r\n%s\r\n--%s--\r\n", name, name, name)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		return b.String()
	}
	for name, config := range map[string]fiber.Config{"parsed": {}, "not parsed": {DisablePreParseMultipartForm: true}} {
		t.Run(name, func(t *testing.T) {
			guarded, _ := newGuard(t)
			url := serve(t, fiber.New(config), guarded, func(c fiber.Ctx) error { return c.SendString(c.FormValue("payee")) })
			pay := func(payee string) frametest.Answer {
				got, _ := frametest.PostBody(t, url, form(t, payee), map[string]string{
					"Content-Type": "multipart/form-data; boundary=" + payee, "Content-Encoding": "gzip",
				})
				return got
			}
			require.Equal(t, frametest.Answer{Status: 200, Body: "alice"}, pay("alice"))
			require.Equal(t, http.StatusConflict, pay("bob").Status)
			require.Equal(t, frametest.Answer{Status: 200, Body: "alice", Replayed: true}, pay("alice"))
		})
	}
}

// fasthttp lets fields pass that net/http refuses. One that could be the key is refused here, and does not
// run unprotected. Which of them fasthttp refuses itself depends on its version.
func TestMalformedKeyFieldIsRefused(t *testing.T) {
	guarded, _ := newGuard(t)
	runs := 0
	address, err := url.Parse(serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
		runs++
		return c.SendStatus(fiber.StatusCreated)
	}))
	require.NoError(t, err)
	for _, fields := range []string{
		"Idempotency-Key : k\r\n",
		"idempotency-key   : \"k\"\r\n",
		"Idempotency-Key :\r\n",
		"Idempotency-Key : k\r\nIdempotency-Key: k\r\n",
		"Idempotency-Key: k\r\nIDEMPOTENCY-KEY : l\r\n",
		"Idempotency-Key\t: k\r\n",
		"Idempotency-Key\r\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address.Host)
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /charges HTTP/1.1\r\nHost: api.test\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", fields)
		require.NoError(t, err)
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, reply.StatusCode, "%q", fields)
		require.Contains(t, []string{"", string(problem.KeyInvalid)}, reply.Header.Get(problem.Header), "%q", fields)
		require.NoError(t, reply.Body.Close())
		require.NoError(t, conn.Close())
	}
	require.Zero(t, runs)
}
