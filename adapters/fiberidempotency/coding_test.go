package fiberidempotency_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/frametest"
)

// fiber decompresses a form by itself. The bytes that are not decompressed show one boundary, between
// which there is nothing, and hide a form for each payee.
func TestCompressedFormDoesNotHideThePayee(t *testing.T) {
	t.Parallel()
	form := func(t *testing.T, boundary string) io.Reader {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Comment = "\r\n--" + boundary + "\r\n\r\n\r\n--" + boundary + "--\r\n"
		for _, name := range []string{"alice", "bob"} {
			_, err := fmt.Fprintf(w, "--%s\r\nContent-Disposition: form-data; name=\"payee\"\r\n\r\n%s\r\n--%s--\r\n", name, name, name)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		return &b
	}
	for name, config := range map[string]fiber.Config{"parsed": {}, "not parsed": {DisablePreParseMultipartForm: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guarded, _ := newGuard(t)
			url := serve(t, fiber.New(config), guarded, func(c fiber.Ctx) error { return c.SendString(c.FormValue("payee")) })
			pay := func(payee string) frametest.Answer {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, form(t, payee))
				require.NoError(t, err)
				r.Header.Set("Content-Type", "multipart/form-data; boundary="+payee)
				r.Header.Set("Content-Encoding", "gzip")
				r.Header.Set("Idempotency-Key", "pay")
				r.Header.Set(frametest.TenantHeader, "tenant")
				resp, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return frametest.Answer{Status: resp.StatusCode, Body: string(got), Replayed: resp.Header.Get("Idempotent-Replayed") == "true"}
			}
			require.Equal(t, frametest.Answer{Status: 200, Body: "alice"}, pay("alice"))
			require.Equal(t, http.StatusConflict, pay("bob").Status)
			require.Equal(t, frametest.Answer{Status: 200, Body: "alice", Replayed: true}, pay("alice"))
		})
	}
}
