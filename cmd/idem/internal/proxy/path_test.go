package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// The rules of a request are those of its pattern. A path that is not clean is not sent elsewhere, and no method
// is refused. A path that has other rules for another reader has none.
func TestRuleOfARequest(t *testing.T) {
	t.Parallel()
	c, err := readConfig(t, example)
	require.NoError(t, err)
	table, _, err := c.build(idempotency.NewMemoryStore(), unlogged)
	require.NoError(t, err)
	for request, want := range map[string]string{
		"POST /payouts/7":                  "POST /payouts/{id}",
		"POST /payouts//7":                 "POST /payouts/{id}",
		"POST /%70ayouts/7":                "POST /payouts/{id}",
		"POST /payouts/7;v=1":              "POST /payouts/{id}",
		"POST /payouts/a%20b%25":           "POST /payouts/{id}",
		"POST /payouts/.7":                 "POST /payouts/{id}",
		"GET /payouts/7":                   "/",
		"PATCH /payouts/7":                 "/",
		"POST /payouts/7/":                 "/",
		"POST /payouts/a%2Fb":              "",
		"POST /other/a%2Fb":                "/",
		"POST /other/../x":                 "/",
		"POST /files/a":                    "/files/",
		"POST /files":                      "/files/",
		"POST /files/a%2Fb":                "/files/",
		"POST /files/x/../%2e%2e/files/b":  "/files/",
		"PUT /profile":                     "PUT /profile",
		"OPTIONS *":                        "/",
		"POST http://host/payouts/7":       "POST /payouts/{id}",
		"POST /x/../payouts/7":             "",
		"POST /payouts/../files/7":         "",
		"POST /payouts/./7":                "",
		"POST /files/%2e%2e/payouts/7":     "",
		"POST /files/%2E./payouts/7":       "",
		"POST /files/..%2fpayouts/7":       "",
		"POST /files/..;/payouts/7":        "",
		"POST /files/..;a=b/payouts/7":     "",
		"POST /files/\\..\\..\\payouts\\7": "",
		"POST /files/..%5cpayouts/7":       "",
		"POST /payouts%2F7":                "",
		"POST /payouts;x/7":                "",
		"POST /a%2fb/%2e%2e/payouts/7":     "",
		"POST /a%2fb/..;x/%2e./payouts/7":  "",
		"POST http://host/x/../payouts/7":  "",
		"PUT /x%2f..%2fprofile":            "",
		"GET /files/%2e%2e/payouts/7":      "",
		"PATCH /other/%2e%2e/payouts/7":    "/",
	} {
		method, target, _ := strings.Cut(request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
		r.URL, err = url.ParseRequestURI(target)
		require.NoError(t, err)
		r.RequestURI = target
		found, sure := table.of(r)
		require.Equal(t, want != "", sure, request)
		if sure {
			require.Equal(t, want, found.Match, request)
		}
	}
}

// A request whose path is ambiguous gets a problem, and the service does not see it.
func TestAmbiguousPathIsRefused(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(told))
	defer s.Close()
	f := startFront(t, s.URL, func(c *Config) {
		c.Routes = []Route{{Match: "POST /payouts/{id}"}, {Match: "/files/", Protect: new(bool)}}
	})
	_, in := f.dial(t, "POST /files/%2e%2e/payouts/7 HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"))
	var p problem.Document
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&p))
	require.Equal(t, http.StatusBadRequest, p.Status)
	require.Contains(t, f.log.String(), `"result":"refused"`)
}

// What a client sends over HTTP/2 is one word of the request line of HTTP/1.1, whatever bytes are in it. Nothing else
// is spelled anew.
func TestServiceGetsOneTarget(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(told))
	defer s.Close()
	f, under := startFront(t, s.URL, nil), startFront(t, s.URL+"/api%2Fv1/", nil)
	for sent, want := range map[string]string{
		"/a HTTP/1.0":              "/a%20HTTP/1.0",
		"/a b?c d=1 2":             "/a%20b?c%20d=1%202",
		"//a b%2Fc":                "//a%20b%2Fc",
		"/a%2Fb c":                 "/a%2Fb%20c",
		"/a\u00a0b?\u0085":         "/a%C2%A0b?%C2%85",
		"/a\\..\\b#c":              "/a%5C..%5Cb%23c",
		"/[x]|{y}^\"<z>`?[x]=\\":   "/%5Bx%5D%7C%7By%7D%5E%22%3Cz%3E%60?%5Bx%5D=%5C",
		"/a%2f..%2F%2e?q=%zz;+%2B": "/a%2f..%2F%2e?q=%zz;+%2B",
		"/-._~!$&'()*+,;=:@/?/?":   "/-._~!$&'()*+,;=:@/?/?",
		"/plain":                   "/plain",
	} {
		for front, prefix := range map[*front]string{f: "", under: "/api%2Fv1"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, nil)
			require.NoError(t, err)
			path, query, _ := strings.Cut(sent, "?")
			r.URL.Opaque, r.URL.RawQuery = path, query
			if strings.HasPrefix(sent, "//") { // which a client of net/http does not send
				r.URL.Opaque, r.URL.Path, r.URL.RawPath = "", "//a b/c", "//a%20b%2Fc"
			}
			transport := &http.Transport{Protocols: new(http.Protocols)}
			transport.Protocols.SetUnencryptedHTTP2(true)
			defer transport.CloseIdleConnections()
			resp, err := transport.RoundTrip(r)
			require.NoError(t, err, sent)
			var got http.Header
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
			resp.Body.Close()
			require.Equal(t, prefix+want, got.Get("Target"), sent)
		}
	}
}
