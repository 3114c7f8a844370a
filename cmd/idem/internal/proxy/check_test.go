package proxy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
