package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/problem"
)

func handler(t *testing.T) http.Handler {
	t.Helper()
	guard, err := newGuard()
	require.NoError(t, err)
	h, err := routes(guard)
	require.NoError(t, err)
	return h
}

func send(t *testing.T, h http.Handler, method, target, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.SetBasicAuth("alice", "alice's token")
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestChargeIsReplayed(t *testing.T) {
	h := handler(t)
	first := send(t, h, http.MethodPost, "/charges", "k", `{"amount":100}`)
	require.Equal(t, http.StatusCreated, first.Code, first.Body.String())
	again := send(t, h, http.MethodPost, "/charges", "k", `{"amount":100}`)
	require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
	require.Equal(t, first.Body.String(), again.Body.String())
}

// The document has what huma knows and what the guard knows, and the page explains its problems.
func TestDocumentHasThePolicy(t *testing.T) {
	h := handler(t)
	var document struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Parameters  []map[string]string
			RequestBody json.RawMessage
			Responses   map[string]struct {
				Ref     string `json:"$ref"`
				Headers map[string]json.RawMessage
			}
		}
		Components map[string]map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(send(t, h, http.MethodGet, "/openapi.json", "", "").Body.Bytes(), &document))
	require.Equal(t, "3.1.0", document.OpenAPI)
	operation := document.Paths["/charges"]["post"]
	require.NotEmpty(t, operation.RequestBody)
	require.Equal(t, []map[string]string{{"$ref": "#/components/parameters/IdempotencyKey.POST_charges"}}, operation.Parameters)
	require.Contains(t, operation.Responses["201"].Headers, "Idempotent-Replayed")
	require.Equal(t, "#/components/responses/Idempotency409.POST_charges", operation.Responses["409"].Ref)
	require.Contains(t, document.Components["responses"], "Idempotency409.POST_charges")

	var refused problem.Document
	require.NoError(t, json.Unmarshal(send(t, h, http.MethodPost, "/charges", "", `{"amount":100}`).Body.Bytes(), &refused))
	page, anchor, ok := strings.Cut(refused.Type, "#")
	require.True(t, ok)
	require.Contains(t, send(t, h, http.MethodGet, page, "", "").Body.String(), `id="`+anchor+`"`)
}

func TestHumasOwnPagesStay(t *testing.T) {
	h := handler(t)
	require.Contains(t, send(t, h, http.MethodGet, "/docs", "", "").Body.String(), "/openapi.yaml")
	require.Contains(t, send(t, h, http.MethodGet, "/openapi.yaml", "", "").Body.String(), "IdempotencyKey.POST_charges")
}
