package policy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// A tree is a JSON object, as encoding/json reads it.
type tree = map[string]any

// describe returns a document with a policy added to an operation.
func describe(t testing.TB, document tree, operation string, p policy.Policy) tree {
	t.Helper()
	text, err := json.Marshal(document)
	require.NoError(t, err)
	text, err = p.Describe(text, operation)
	require.NoError(t, err)
	return parse(t, text)
}

// parse reads JSON.
func parse(t testing.TB, text []byte) tree {
	t.Helper()
	var v tree
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

// at returns the value at a path of members.
func at(t testing.TB, v any, path ...string) any {
	t.Helper()
	for _, name := range path {
		object, ok := v.(tree)
		require.True(t, ok, path)
		require.Contains(t, object, name)
		v = object[name]
	}
	return v
}

// guardOf returns a guard with a route.
func guardOf(t testing.TB, label string, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	g, err := idempotency.New(idempotency.NewMemoryStore(), func(*http.Request) (string, error) { return "", nil },
		append(opts, idempotency.WithRoute(label))...)
	require.NoError(t, err)
	return g
}

// documents returns documents with the fragments of unlike policies, by the names of their files.
func documents(t testing.TB) map[string]tree {
	keyInBody := idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", nil })
	ownErrors := idempotency.WithErrorWriter(func(http.ResponseWriter, *http.Request, problem.Document) {})
	minimal := func(paths ...string) tree {
		all := tree{}
		for i, path := range paths {
			all[path] = tree{"post": tree{
				"operationId": fmt.Sprintf("operation%d", i), "summary": "Does something.",
				"responses": tree{"201": tree{"description": "It was done."}},
			}}
		}
		return tree{
			"openapi": "3.1.0",
			"info": tree{
				"title": "A service", "version": "1.0.0",
				"license": tree{"name": "MIT", "identifier": "MIT"},
			},
			"servers":  []any{tree{"url": "https://api.test"}},
			"security": []any{},
			"paths":    all,
		}
	}
	plain := minimal("/charges")
	plain = describe(t, plain, "POST /charges", guardOf(t, "").Policy())
	routes := minimal("/charges", "/payouts/{id}", "/hooks", "/legacy")
	routes["paths"].(tree)["/payouts/{id}"].(tree)["parameters"] = []any{
		tree{"name": "id", "in": "path", "required": true, "schema": tree{"type": "string"}},
	}
	routes = describe(t, routes, "POST /charges", guardOf(t, "POST /charges", idempotency.WithRequired(true), idempotency.WithStrictKeys(true),
		idempotency.WithPolicyURL("https://api.test/keys"), idempotency.WithExpiryHeader("Idempotency-TTL")).Policy())
	routes = describe(t, routes, "POST /payouts/{id}", guardOf(t, "POST /payouts/{id}", idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithMismatchStatus(422), idempotency.WithTTL(7*24*time.Hour), idempotency.WithHeader("X-Request-Id"),
		idempotency.WithExpiryHeader("Idempotency-TTL")).Policy())
	routes = describe(t, routes, "POST /hooks", guardOf(t, "POST /hooks", keyInBody).Policy())
	routes = describe(t, routes, "POST /legacy", guardOf(t, "POST /legacy", ownErrors).Policy())
	older := minimal("/charges") // for tools that do not know 3.1 yet
	older["openapi"], older["info"] = "3.0.4", tree{"title": "A service", "version": "1.0.0", "license": tree{"name": "MIT", "url": "https://api.test/license"}}
	older = describe(t, older, "POST /charges", guardOf(t, "POST /charges").Policy())
	return map[string]tree{"plain.json": plain, "routes.json": routes, "older.json": older}
}

// The documents go to the directory that scripts/check-openapi.sh names, for a linter.
func TestDocumentsForTheLinter(t *testing.T) {
	dir := os.Getenv("OPENAPI_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	for name, document := range documents(t) {
		text, err := json.MarshalIndent(document, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 3)
}

// Each reference leads to something, and each component is used.
func TestReferencesOfTheFragment(t *testing.T) {
	for name, document := range documents(t) {
		used := make(map[string]bool)
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, e := range v {
					walk(e)
				}
			case tree:
				for member, e := range v {
					if to, ok := e.(string); ok && member == "$ref" {
						used[to] = true
						at(t, document, strings.Split(strings.TrimPrefix(to, "#/"), "/")...)
					}
					walk(e)
				}
			}
		}
		walk(document)
		for kind, components := range document["components"].(tree) {
			for component := range components.(tree) {
				require.Regexp(t, `^[a-zA-Z0-9._-]+$`, component)
				require.True(t, used["#/components/"+kind+"/"+component], "%s: %s %s is not used", name, kind, component)
			}
		}
	}
}

// Each status that a request can be refused with is described, with the codes that it may have.
func TestResponsesOfTheFragment(t *testing.T) {
	p := guardOf(t, "", idempotency.WithMismatchStatus(422), idempotency.WithPolicyURL("https://api.test/keys")).Policy()
	fragment := parse(t, p.OpenAPI())
	count := 0
	for _, r := range p.Refusals {
		for _, status := range r.Statuses {
			count++
			name := fmt.Sprintf("Idempotency%d", status)
			require.Equal(t, "#/components/responses/"+name, at(t, fragment, "operation", "responses", fmt.Sprint(status), "$ref"))
			response := at(t, fragment, "components", "responses", name)
			content := at(t, response, "content", problem.ContentType)
			own := at(t, content, "schema", "allOf").([]any)[1]
			require.Contains(t, at(t, own, "properties", "code", "enum"), string(r.Code))
			require.Equal(t, []any{float64(status)}, at(t, own, "properties", "status", "enum"))
			example := at(t, content, "examples", string(r.Code), "value")
			require.Equal(t, "https://api.test/keys#"+string(r.Code), at(t, example, "type"))
			if r.Retry {
				at(t, response, "headers", "Retry-After")
			}
			require.Contains(t, at(t, response, "description"), r.Meaning)
		}
	}
	require.Greater(t, count, 10)
}

// The schema of a problem has the members of the document that a guard sends.
func TestSchemaIsThatOfTheDocument(t *testing.T) {
	schema := at(t, parse(t, charges.OpenAPI()), "components", "schemas", "IdempotencyProblem")
	properties := at(t, schema, "properties").(tree)
	typ := reflect.TypeFor[problem.Document]()
	require.Len(t, properties, typ.NumField()-1)
	for field := range typ.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue // Differs, which is not sent
		}
		require.Contains(t, properties, name)
		require.Equal(t, options == "", contains(at(t, schema, "required"), name), name)
		kind := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Slice: "array"}[field.Type.Kind()]
		require.Equal(t, kind, at(t, properties, name, "type"))
	}
	require.Len(t, at(t, properties, "code", "enum"), len(problem.Codes()))
}

func contains(list any, value string) bool {
	for _, e := range list.([]any) {
		if e == value {
			return true
		}
	}
	return false
}

// The pattern of the parameter accepts a key exactly if a guard does. It does not look at what
// follows a quoted key, because that may be a parameter.
func TestPatternOfTheKey(t *testing.T) {
	values := []string{
		"", `""`, "abc", `"abc"`, "ü", `"ü"`, `"a`, `"\"\\"`, `"\a"`, `"\"`, "a b", `"a b"`, "\x7f", "\"\x7f\"",
		strings.Repeat("x", 255), strings.Repeat("x", 256), `"` + strings.Repeat("x", 255) + `"`, `"` + strings.Repeat("x", 256) + `"`,
		`"` + strings.Repeat(`\\`, 255) + `"`, `"` + strings.Repeat(`\\`, 256) + `"`,
	}
	for c := rune(' '); c <= '~'; c++ {
		values = append(values, string(c), "a"+string(c)+"b", `"a`+string(c)+`b"`)
	}
	for _, strict := range []bool{false, true} {
		p := charges
		p.Key.Strict = strict
		parameter := at(t, parse(t, p.OpenAPI()), "components", "parameters", "IdempotencyKey.POST_charges")
		pattern := regexp.MustCompile(at(t, parameter, "schema", "pattern").(string))
		require.Regexp(t, pattern, at(t, parameter, "example"))
		for _, value := range values {
			value = strings.TrimSpace(value)
			_, err := keyheader.Parse(value, strict)
			if strings.HasPrefix(value, `"`) && !strings.HasSuffix(value, `"`) || value == `"a"b"` {
				continue
			}
			require.Equal(t, err == nil, pattern.MatchString(value), "%q, strict: %t", value, strict)
		}
	}
}

// A key that is not in a header field has no parameter.
func TestKeyInTheBodyHasNoParameter(t *testing.T) {
	p := charges
	p.Key.Header = ""
	fragment := parse(t, p.OpenAPI())
	require.Empty(t, at(t, fragment, "operation", "parameters"))
	require.Empty(t, at(t, fragment, "components", "parameters"))
	require.Len(t, at(t, fragment, "headers"), 1)
}

// What a document says itself stays as it is.
func TestDescribeKeepsWhatTheDocumentSays(t *testing.T) {
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
