package proxy

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/idempotency/internal/pagetest"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var write = flag.Bool("write", false, "write the schema")

func readConfig(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	c := Default()
	err := c.Read(file)
	return c, err
}

const example = `to: h2c://127.0.0.1:3000
listen: 127.0.0.1:9000
admin: "off"
store: {sqlite: records.db}
scope: header:X-Tenant
ttl: 48h
recovery: hold-after-3
routes:
  - match: POST /payouts/{id}
    required: true
    recovery: hold
    fingerprint: json
    timeout: 10s
  - match: /files/
    protect: false
  - match: PUT /profile
    ttl: 1h
    wait: 2s
    request_body: 1000
`

func TestFileIsRead(t *testing.T) {
	t.Parallel()
	c, err := readConfig(t, example)
	require.NoError(t, err)
	require.NoError(t, c.Check())
	var out strings.Builder
	require.NoError(t, c.Print(&out))
	require.Equal(t, `to h2c://127.0.0.1:3000, scope header:X-Tenant, store sqlite

MATCH               PROTECTED                  PASSED                                 TTL      RECOVERY      FINGERPRINT  TIMEOUT
POST /payouts/{id}  POST, key required         other methods                          48h0m0s  hold          json         10s
/files/             nothing                    everything                             -        -             -            -
PUT /profile        PUT with a key             requests without a key, other methods  1h0m0s   hold-after-3  raw          1m0s
/                   POST and PATCH with a key  requests without a key, other methods  48h0m0s  hold-after-3  raw          1m0s
`, out.String())
}

// An unknown word would be a rule that nobody keeps.
func TestMistakesAreTold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                                   "to: name the service",
		"to: ftp://x":                                        "the scheme is",
		"to: http://":                                        "it must be a scheme, a host",
		"to: http://user:secret@x":                           "it must be a scheme, a host",
		"to: http://x\nttll: 1h":                             "line 2: field ttll not found",
		"to: http://x\nto: http://y":                         `mapping key "to" already defined at line 1`,
		"to: http://x\nttl: soon":                            "cannot unmarshal",
		"to: http://x\nttl: -1h":                             "TTL",
		"to: http://x\n---\nto: http://y":                    "more than one document",
		"to: http://x\nscope: tenant":                        `scope: "tenant" must be`,
		"to: http://x\nscope: 'header:'":                     `scope: "header:" must be`,
		"to: http://x\nscope: jwt:sub":                       "needs the keys",
		"to: http://x\nrecovery: never":                      `recovery: "never" must be`,
		"to: http://x\nrecovery: hold-after-0":               "ecovery",
		"to: http://x\nfingerprint: body":                    `fingerprint: "body" must be`,
		"to: http://x\nfingerprint: 'fields:'":               `field ""`,
		"to: http://x\nfingerprint: 'fields:a,,b'":           `field ""`,
		"to: http://x\nfingerprint: 'fields:a, '":            `field ""`,
		"to: http://x\nfingerprint: 'fields:/a/b'":           `field "/a/b" must be`,
		"to: http://x\nfingerprint: 'fields:$.a'":            `field "$.a" must be`,
		"to: http://x\nfingerprint: 'fields:a. b'":           `field "a. b" must be`,
		"to: http://x\nreference: order":                     `reference: "order" must be`,
		"to: http://x\nreference: 'field:a..b'":              `reference: "field:a..b" must be`,
		"to: http://x\nreference: 'header:X Order'":          `reference: "header:X Order" must be`,
		"to: http://x\ntimeout: -1s":                         "timeout",
		"to: http://x\nstore: {redis: redis://x, sqlite: y}": "name one of",
		"to: http://x\nroutes: [{match: POST}]":              `route "POST"`,
		"to: http://x\nroutes: [{match: /}]":                 "stand beside routes",
		"to: http://x\nroutes: [{match: /a}, {match: /a}]":   "conflicts",
		"to: http://x\nroutes: [{match: /a, recovery: no}, {match: /b, ttl: -1h}]": `route "/b"`,
		"to: http://x\nroutes: [{match: /a, proTect: false}]":                      "field proTect not found",
	} {
		requireMistake(t, text, want)
	}
	c := Default()
	require.Error(t, c.Read("no-such-file"))
}

func requireMistake(t *testing.T, text, want string) {
	t.Helper()
	c, err := readConfig(t, text)
	if err == nil {
		err = c.Check()
	}
	require.ErrorContains(t, err, want, text)
	require.NotContains(t, err.Error(), "in type", text)
	require.NotContains(t, err.Error(), "secret", text)
}

// A field that the configuration names counts, however the list is spelled.
func TestFieldsCount(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"fields:a,b", "fields:a, b", "fields: a ,\tb "} {
		f := startTold(t, "", func(c *Config) { c.Fingerprint = word })
		send := func(body string) string {
			got := f.sendBody(t, http.MethodPost, "", body, "Authorization: Bearer alice", "Idempotency-Key: k", "Content-Type: application/json")
			return got.Header.Get("Idempotent-Replayed") + got.Header.Get("Idempotency-Error")
		}
		require.Empty(t, send(`{"a":1,"b":2,"c":3}`))
		require.Equal(t, "true", send(`{"a":1,"b":2,"c":4}`))
		require.Equal(t, "key-reused", send(`{"a":1,"b":3,"c":3}`), word)
	}
}

// Each rule of a file is kept.
func TestRulesAreKept(t *testing.T) {
	t.Parallel()
	f := startTold(t, "", func(c *Config) {
		read, err := readConfig(t, example)
		require.NoError(t, err)
		read.To = c.To
		*c = read
	})
	tenant := "X-Tenant: a"
	require.Equal(t, http.StatusBadRequest, f.send(t, http.MethodPost, "/payouts/1", "", tenant).Status)
	require.Equal(t, http.StatusForbidden, f.send(t, http.MethodPost, "/payouts/1", "k").Status, "no tenant")
	require.Equal(t, http.StatusForbidden, f.send(t, http.MethodPost, "/payouts/1", "k", tenant, "X-Tenant: b").Status, "two tenants")
	require.Equal(t, "k", f.send(t, http.MethodPut, "/profile", "k", tenant).Header.Get("Idempotency-Key"))
	require.Equal(t, "true", f.send(t, http.MethodPut, "/profile", "k", tenant).Header.Get("Idempotent-Replayed"))
	require.Empty(t, f.send(t, http.MethodPut, "/profile", "k", "X-Tenant: b").Header.Get("Idempotent-Replayed"))
	for range 2 {
		require.Empty(t, f.send(t, http.MethodPost, "/files/1", "k", tenant).Header.Get("Idempotency-Key"), "not protected")
	}
	large := f.sendBody(t, http.MethodPut, "/profile", strings.Repeat("a", 1001), tenant, "Idempotency-Key: large")
	require.Equal(t, http.StatusRequestEntityTooLarge, large.Status)
}

const schemaFile = "../../../../docs/reference/proxy.schema.json"

// The schema in the docs is made from what the file is read into.
func TestSchema(t *testing.T) {
	t.Parallel()
	s, err := jsonschema.For[Config](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[time.Duration](): {Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`},
	}})
	require.NoError(t, err)
	s.Schema, s.Title, s.Required = "https://json-schema.org/draft/2020-12/schema", "The file of idem proxy --config", nil
	text, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	text = append(text, '\n')
	if *write {
		require.NoError(t, os.WriteFile(schemaFile, text, 0o600))
	}
	want := pagetest.File(t, schemaFile)
	require.Equal(t, string(want), string(text), "go test ./cmd/idem/internal/proxy -write writes it")

	resolved, err := s.Resolve(nil)
	require.NoError(t, err)
	valid := func(text string) error {
		var file map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text), &file))
		return resolved.Validate(file)
	}
	require.NoError(t, valid(example))
	require.Error(t, valid("to: http://x\nttll: 1h"))
	require.Error(t, valid("routes: [{protect: false}]"))

	// Both readers know the same words.
	for _, of := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Store](), reflect.TypeFor[JWT](), reflect.TypeFor[Rules](), reflect.TypeFor[Route]()} {
		for f := range of.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
				require.Equal(t, f.Tag.Get("yaml"), name)
			}
		}
	}
}

// What can be read and cannot work is told before a request comes.
func TestWhatCannotWorkIsTold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"scope: header:X Tenant":                              "not the name of a field",
		"scope: header:Host":                                  "Host is not what callers are known by",
		"scope: header:content-length":                        "Content-Length is not",
		"scope: header:Connection":                            "Connection is not",
		"scope: header:Transfer-Encoding":                     "Transfer-Encoding is not",
		"scope: header:Te":                                    "Te is not",
		"scope: header:Upgrade":                               "Upgrade is not",
		"scope: header:Idempotency-Key":                       "Idempotency-Key is not",
		"scope: header:Idempotency-Attempt":                   "Idempotency-Attempt is not",
		"scope: header:X-Forwarded-User":                      "X-Forwarded-User is not",
		"scope: header:Forwarded\ntrust_forwarded: true":      "Forwarded is not",
		"jwt: {issuer: x}":                                    "the scope is authorization",
		"listen: foo":                                         `listen: "foo" must be host:port`,
		"listen: 127.0.0.1:65536":                             "must be host:port",
		"admin: 127.0.0.1:http":                               "must be host:port",
		"admin: 127.0.0.1:8080":                               "the address of clients",
		"grace: -1s":                                          "grace",
		"ttl: 0s":                                             "ttl: 0",
		"lease: 0s":                                           "lease: 0",
		"request_body: 0":                                     "request_body: 0",
		"response_body: 0":                                    "response_body: 0",
		"timeout: 0s":                                         "timeout",
		"methods: []":                                         "no method",
		"methods: [post]":                                     "post",
		"store: {redis: 'http://user:secret@x'}":              "store: redis",
		"store: {redis: 'redis://user:secret@x:port'}":        "store: redis",
		"store: {postgres: 'postgres://user:secret@x:port/'}": "cannot parse",
		"store: {prefix: 'a:'}":                               "prefix is for redis",
		"store: {redis: redis://x, table: a}":                 "table is for postgres",
		"routes: [{match: 'POST /c '}]":                       "a blank too many",
		"routes: [{match: 'POST  /c'}]":                       "a blank too many",
		`routes: [{match: "POST\t/c"}]`:                       "a blank too many",
		"routes: [{match: 'post /c'}]":                        "post",
		"routes: [{match: //x}]":                              "not clean",
		"routes: [{match: /x/../y}]":                          "not clean",
		"routes: [{match: '/x?a=1'}]":                         "no query",
		"routes: [{match: 'POST API.test/x'}]":                "lower case",
		"routes: [{match: api.test./x}]":                      "lower case",
		"routes: [{match: 'api.test:80/x'}]":                  "without a port",
		"routes: [{match: POST /x, methods: [PUT]}]":          "not one of methods",
		"routes: [{match: /x, ttl: 0s}]":                      "line 2: ttl: nothing is not a value",
		"routes: [{match: /x, lease: 0s}]":                    "lease: nothing",
		"routes: [{match: /x, wait: 0ms}]":                    "wait: nothing",
		"routes: [{match: /x, timeout: 0h}]":                  "timeout: nothing",
		"routes: [{match: /x, request_body: 0}]":              "request_body: nothing",
		"routes: [{match: /x, recovery: ''}]":                 "recovery: nothing",
	} {
		requireMistake(t, "to: http://user-service\n"+text, want)
	}
	for text, want := range map[string]string{
		"to: http://127.0.0.1:65536": "to: it must be",
		"to: http://:80":             "to: it must be",
		"to: http://127.0.0.1:8080":  "the proxy itself",
	} {
		requireMistake(t, text, want)
	}
	for _, text := range []string{
		"listen: ':0'\nadmin: ':0'", "admin: 'off'", "listen: '[::1]:80'", "grace: 0s", "scope: header:X-Forwarded-User\ntrust_forwarded: true",
		"scope: header:Cf-Access-User", "store: {redis: redis://x, prefix: 'a:'}", "store: {postgres: 'postgres://x/y', table: a}", "wait: 0s",
		"routes: [{match: POST /x, methods: [POST]}, {match: shop.example/x/}, {match: 'POST /a b', request_body: 10}]",
	} {
		c, err := readConfig(t, "to: http://x\n"+text)
		require.NoError(t, err, text)
		require.NoError(t, c.Check(), text)
	}
	c := Default()
	c.To, c.Listen, c.Scope = "http://x", "foo", "header:Host"
	require.Equal(t, 2, strings.Count(c.Check().Error(), "\n")+1, "all mistakes are told at once")
}
