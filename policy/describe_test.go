package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What a document says itself stays as it is.
func TestDescribeKeepsWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	const document = `{
		"openapi": "3.1.0", "x-number": 12345678901234567890, "x-fraction": 1.10,
		"paths": {"/charges": {"get": {"responses": {"200": {}}}, "post": {"responses": {
			"201": {"description": "made", "headers": {"Idempotent-Replayed": {"description": "own"}, "Etag": {}}},
			"402": {"$ref": "#/components/responses/Declined"},
			"409": {"description": "own"}
		}}}},
		"components": {"schemas": {"IdempotencyProblem": {"description": "own"}, "Charge": {}}, "headers": {}}
	}`
	got, err := charges.Describe([]byte(document), "POST /charges")
	require.NoError(t, err)
	require.Contains(t, string(got), "12345678901234567890")
	require.Contains(t, string(got), "1.10")
	api := parse(t, got)
	require.Equal(t, tree{"responses": tree{"200": tree{}}}, at(t, api, "paths", "/charges", "get"), "another operation")
	responses := at(t, api, "paths", "/charges", "post", "responses")
	require.Equal(t, "own", at(t, responses, "409", "description"))
	at(t, responses, "409", "headers", "Idempotent-Replayed", "$ref")
	require.Equal(t, tree{"$ref": "#/components/responses/Declined"}, at(t, responses, "402"))
	require.Equal(t, "own", at(t, responses, "201", "headers", "Idempotent-Replayed", "description"))
	at(t, responses, "201", "headers", "Etag")
	require.Equal(t, "own", at(t, api, "components", "schemas", "IdempotencyProblem", "description"))
	at(t, api, "components", "schemas", "Charge")
	at(t, api, "components", "headers", "Retry-After")

	again, err := charges.Describe(got, "POST /charges")
	require.NoError(t, err)
	require.Equal(t, string(got), string(again), "it is the same the second time")
}

// A program that has declared the field does not get it twice, which OpenAPI forbids.
func TestDescribeAddsTheParameterOnce(t *testing.T) {
	t.Parallel()
	const field = `{"name": "idempotency-key", "in": "header", "schema": {"type": "string"}}`
	for name, tt := range map[string]struct {
		item, operation, components string
		parameters                  int // of the operation, afterwards
	}{
		"none":             {`[]`, `[]`, `{}`, 1},
		"another field":    {`[]`, `[{"name": "X-Trace", "in": "header"}]`, `{}`, 2},
		"not in a field":   {`[]`, `[{"name": "Idempotency-Key", "in": "query"}]`, `{}`, 2},
		"of the operation": {`[]`, `[` + field + `]`, `{}`, 1},
		"of the path":      {`[` + field + `]`, `[]`, `{}`, 0},
		"referenced":       {`[]`, `[{"$ref": "#/components/parameters/Own"}]`, `{"Own": ` + field + `}`, 1},
		"leads nowhere":    {`[]`, `[{"$ref": "#/components/parameters/Gone"}]`, `{"Own": ` + field + `}`, 2},
	} {
		document := `{"paths": {"/charges": {"parameters": ` + tt.item + `, "post": {"parameters": ` + tt.operation +
			`, "responses": {}}}}, "components": {"parameters": ` + tt.components + `}}`
		got, err := charges.Describe([]byte(document), "POST /charges")
		require.NoError(t, err, name)
		require.Len(t, at(t, parse(t, got), "paths", "/charges", "post", "parameters"), tt.parameters, name)
	}
}

func TestDescribeRefusesWhatIsNotADocument(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		``:                                     "EOF",
		`{`:                                    "unexpected EOF",
		`[]`:                                   "cannot unmarshal",
		`null`:                                 "not one JSON object",
		`{} {}`:                                "not one JSON object",
		`{}`:                                   `no operation "POST /charges"`,
		`{"paths": []}`:                        `"paths" is not an object`,
		`{"paths": {}}`:                        `no operation`,
		`{"paths": {"/charges": {}}}`:          `no operation`,
		`{"paths": {"/charges": {"get": {}}}}`: `no operation`,
		`{"paths": {"/charges": {"post": {"responses": 1}}}}`:                                         `"responses" is not an object`,
		`{"paths": {"/charges": {"post": {"responses": {"200": 1}}}}}`:                                `"200" is not an object`,
		`{"components": 1, "paths": {"/charges": {"post": {}}}}`:                                      `"components" is not an object`,
		`{"components": {"schemas": []}, "paths": {"/charges": {"post": {}}}}`:                        `"schemas" is not an object`,
		`{"paths": {"/charges": {"post": {"parameters": {}, "responses": {"200": {"headers": 1}}}}}}`: `"headers" is not an object`,
	} {
		got, err := charges.Describe([]byte(document), "POST /charges")
		require.ErrorContains(t, err, want, document)
		require.ErrorContains(t, err, "policy: Describe: ")
		require.Nil(t, got)
	}
	_, err := charges.Describe([]byte(`{"paths": {"": {"post": {}}}}`), "POST")
	require.NoError(t, err)
	_, err = charges.Describe([]byte(`{"paths": {"/charges": {"post": {}}}}`), "")
	require.Error(t, err)
}
