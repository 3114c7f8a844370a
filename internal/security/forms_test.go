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

// Attacks on the fingerprint by way of Content-Type: net/http reads a form in another way than the
// fingerprint would.

// payee answers with the payee of a form, as net/http reads it.
func payee(w http.ResponseWriter, r *http.Request, _ int64) {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprint(w, r.FormValue("payee"))
}

func fingerprints() map[string]idempotency.FingerprintFunc {
	return map[string]idempotency.FingerprintFunc{
		"raw":    idempotency.RawFingerprint,
		"JSON":   idempotency.JSONFingerprint,
		"fields": idempotency.FieldsFingerprint("payee"),
	}
}

// onEachFingerprint runs a test with each fingerprint function, on each transport.
func onEachFingerprint(t *testing.T, f func(t *testing.T, s *guardtest.Server)) {
	t.Helper()
	for name, fp := range fingerprints() {
		t.Run(name, func(t *testing.T) {
			guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
				g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithFingerprint(fp))
				f(t, serve(g.Handler(&guardtest.Counter{Handler: payee})))
			})
		})
	}
}

const payeeField = "Content-Disposition: form-data; name=\"payee\"\r\n\r\n"

// A backslash in a quoted boundary escapes the next character to RFC 9110, and is part of the
// boundary to net/http. The same bytes name one payee with the boundary AA and another with A\A.
func TestEscapedBoundaryDoesNotHideThePayee(t *testing.T) {
	onEachFingerprint(t, func(t *testing.T, s *guardtest.Server) {
		pay := func(key, boundary string) guardtest.Reply {
			return s.Do(t, guardtest.Call{
				Key:    key,
				Header: http.Header{"Content-Type": {`multipart/form-data; boundary="` + boundary + `"`}},
				Body: "--AA\r\n" + payeeField + "alice, not --AA\r\n--AA--\r\n" +
					"--A\\A\r\n" + payeeField + "bob\r\n--A\\A--\r\n",
			})
		}
		require.Equal(t, "alice, not --AA", pay("k", "AA").Body)
		require.Equal(t, "bob", pay("other", `A\A`).Body)
		guardtest.RequireProblem(t, pay("k", `A\A`), http.StatusConflict, problem.KeyReused)
		require.True(t, pay("k", "AA").Replayed())
		require.True(t, pay("other", `A\A`).Replayed(), "a retry of the same bytes")
	})
}

// net/http takes both boundaries for a(b). The bytes that stand in for the boundary as it is written
// are the payee.
func TestBoundaryWithTwoSpellingsDoesNotHideThePayee(t *testing.T) {
	onEachFingerprint(t, func(t *testing.T, s *guardtest.Server) {
		pay := func(spelling string) guardtest.Reply {
			return s.Do(t, guardtest.Call{
				Key:    "k",
				Header: http.Header{"Content-Type": {`multipart/form-data; boundary="` + spelling + `"`}},
				Body:   "--a(b)\r\n" + payeeField + "\r\n--" + spelling + "--\r\n--a(b)--\r\n",
			})
		}
		require.Equal(t, "\r\n--a\\(b)--", pay(`a\(b)`).Body)
		guardtest.RequireProblem(t, pay(`a(b\)`), http.StatusConflict, problem.KeyReused)
		require.True(t, pay(`a\(b)`).Replayed())
	})
}

// net/http refuses these types, so that the handler's answer is an error. It is not the answer to a
// form that net/http can read.
func TestFormThatNetHTTPRefusesIsNotOneThatItReads(t *testing.T) {
	onEachFingerprint(t, func(t *testing.T, s *guardtest.Server) {
		pay := func(key, boundary string, contentType ...string) guardtest.Reply {
			return s.Do(t, guardtest.Call{
				Key:    key,
				Header: http.Header{"Content-Type": contentType},
				Body:   "--" + boundary + "\r\n" + payeeField + "alice\r\n--" + boundary + "--\r\n",
			})
		}
		for key, refused := range map[string][]string{
			"semicolons-at-the-end":    {"multipart/form-data; boundary=A;;"},
			"semicolons-with-a-space":  {"multipart/form-data; boundary=A; ;"},
			"semicolons-in-the-middle": {"multipart/form-data;; boundary=A"},
		} {
			require.Equal(t, http.StatusBadRequest, pay(key, "A", refused...).Status, key)
			guardtest.RequireProblem(t, pay(key, "B", "multipart/form-data; boundary=B"), http.StatusConflict, problem.KeyReused)
			require.True(t, pay(key, "A", refused...).Replayed(), key)
		}

		// net/http reads the first of two fields, which is an error. Joined as a list is, they
		// would be a type with the boundary A,B.
		const key = "two-fields"
		first, second := `multipart/form-data; boundary="A`, `B"`
		require.Equal(t, http.StatusBadRequest, pay(key, "A,B", first, second).Status)
		guardtest.RequireProblem(t, pay(key, "C", "multipart/form-data; boundary=C"), http.StatusConflict, problem.KeyReused)
	})
}

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
