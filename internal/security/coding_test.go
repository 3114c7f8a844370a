package security

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Attacks by way of what the bytes of a body are not: a form that is compressed, JSON in another charset
// than UTF-8. A handler decodes them, and the fingerprint does not.

// twoPayees returns a compressed body in which a boundary leads to one payee, and another boundary to
// another. The bytes that are not decompressed show a form without parts, whose boundary is the given one.
func twoPayees(t *testing.T, boundary string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Comment = "\r\n--" + boundary + "\r\n\r\n\r\n--" + boundary + "--\r\n"
	for _, name := range []string{"alice", "bob"} {
		_, err := fmt.Fprintf(w, "--%s\r\n%s%s\r\n--%s--\r\n", name, payeeField, name, name)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.String()
}

// inflated returns a handler for the decompressed request.
func inflated(next func(http.ResponseWriter, *http.Request, int64)) func(http.ResponseWriter, *http.Request, int64) {
	return func(w http.ResponseWriter, r *http.Request, run int64) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = body
		next(w, r, run)
	}
}

func TestCompressedFormDoesNotHideThePayee(t *testing.T) {
	t.Parallel()
	for name, fp := range fingerprints() {
		t.Run(name, func(t *testing.T) {
			guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
				for _, coding := range []string{"gzip", "identity, GZIP", "x-gzip"} {
					g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithFingerprint(fp))
					s := serve(g.Handler(&guardtest.Counter{Handler: inflated(payee)}))
					pay := func(name string) guardtest.Reply {
						return s.Do(t, guardtest.Call{Key: "k", Body: twoPayees(t, name), Header: http.Header{
							"Content-Type": {"multipart/form-data; boundary=" + name}, "Content-Encoding": {coding},
						}})
					}
					require.Equal(t, "alice", pay("alice").Body, name)
					guardtest.RequireProblem(t, pay("bob"), http.StatusConflict, problem.KeyReused)
					require.True(t, pay("alice").Replayed(), "a retry of the same bytes")
				}
			})
		})
	}
}

// The bytes of the second body are another name in ISO 8859-1 than in UTF-8, in which both are the same.
func TestCharsetOfJSONDoesNotHideThePayee(t *testing.T) {
	t.Parallel()
	latin1 := func(w http.ResponseWriter, r *http.Request, _ int64) {
		bytes, _ := io.ReadAll(r.Body)
		text := make([]rune, len(bytes))
		for i, b := range bytes {
			text[i] = rune(b)
		}
		var charge struct{ Payee string }
		if err := json.Unmarshal([]byte(string(text)), &charge); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, charge.Payee)
	}
	for name, fp := range fingerprints() {
		t.Run(name, func(t *testing.T) {
			guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
				for _, contentType := range []string{
					"application/json; charset=iso-8859-1", `application/vnd.api+json; Charset="ISO-8859-1"`, "application/json;charset=utf-7",
				} {
					g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithFingerprint(fp))
					s := serve(g.Handler(&guardtest.Counter{Handler: latin1}))
					pay := func(body string) guardtest.Reply {
						return s.Do(t, guardtest.Call{Key: "k", Body: body, Header: http.Header{"Content-Type": {contentType}}})
					}
					require.Equal(t, "é", pay(`{"payee":"\u00e9"}`).Body, name)
					guardtest.RequireProblem(t, pay(`{"payee":"é"}`), http.StatusConflict, problem.KeyReused)
					require.True(t, pay(`{"payee":"\u00e9"}`).Replayed(), "a retry of the same bytes")
				}
			})
		})
	}
}
