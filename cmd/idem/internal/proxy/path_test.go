package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
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
		"POST /payouts//7":                 "",
		"POST //payouts/7":                 "",
		"POST /other//7":                   "/",
		"POST /files///a":                  "/files/",
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

// The host of a request counts as services read it.
func TestRuleOfAHost(t *testing.T) {
	t.Parallel()
	c := Default()
	c.To, c.Routes = "http://127.0.0.1:1", []Route{{Match: "POST api.test/payouts"}}
	table, _, err := c.build(idempotency.NewMemoryStore(), unlogged)
	require.NoError(t, err)
	for host, want := range map[string]string{
		"api.test": "POST api.test/payouts", "API.Test:8080": "POST api.test/payouts", "api.test.": "POST api.test/payouts", "api.test.:80": "POST api.test/payouts",
		"other.test": "/", "[::1]:80": "/",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payouts", nil)
		r.Host = host
		found, sure := table.of(r)
		require.True(t, sure)
		require.Equal(t, want, found.Match, host)
	}
}

// A request whose path is ambiguous gets a problem, and the service does not see it.
func TestAmbiguousPathIsRefused(t *testing.T) {
	t.Parallel()
	f := startTold(t, "", func(c *Config) {
		c.Routes = []Route{{Match: "POST /payouts/{id}"}, {Match: "/files/", Protect: new(bool)}}
	})
	_, in := f.dial(t, "POST /files/%2e%2e/payouts/7 HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n")
	got := received(t, in)
	require.Equal(t, http.StatusBadRequest, got.Status)
	require.Equal(t, http.StatusBadRequest, got.Problem.Status)
	require.Contains(t, f.log.String(), `"result":"refused"`)
}

// What a client sends over HTTP/2 is one word of the request line of HTTP/1.1, whatever bytes are in it. Nothing else
// is spelled anew.
func TestServiceGetsOneTarget(t *testing.T) {
	t.Parallel()
	f, under := startTold(t, "", nil), startTold(t, "/api%2Fv1/", nil)
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
			got, err := guardtest.Read(transport.RoundTrip(r)) //nolint:bodyclose // Read closes it
			require.NoError(t, err, sent)
			require.Equal(t, prefix+want, told(t, got).Get("Target"), sent)
		}
	}
}

// This file has clients and services that take their time, or spell a request in their own way.

// A client that takes nothing of its answer any more keeps its key no longer than others may, and the run is recorded.
func TestSleepingReader(t *testing.T) {
	t.Parallel()
	const size = 16 << 20 // more than sockets hold
	large := append(fmt.Appendf(nil, "HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n", size), bytes.Repeat([]byte("a"), size)...)
	s := startRaw(t, listen(t), func(_ int, c net.Conn) bool {
		_, err := c.Write(large)
		return err == nil
	})
	c := Default()
	c.To = s.url
	f := startFrontOn(t, &c, newTransport(false, false), 300*time.Millisecond)
	_, in := f.dial(t, "POST / HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	require.Eventually(t, func() bool {
		return f.send(t, http.MethodPost, "/", "k").Header.Get("Idempotency-Error") == "response-not-kept"
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, 1, s.count())
}

// While a client takes its time over an answer, its service is not silent.
func TestSilenceIsThatOfTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		body, service := io.Pipe()
		w := &watch{ReadCloser: body, resp: &http.Response{}, after: time.Second, cancel: cancel}
		w.timer = time.AfterFunc(w.after, func() { cancel(errSilent) })
		defer w.Close()
		go func() { _, _ = service.Write([]byte("ab")) }()
		for range 2 {
			_, err := w.Read(make([]byte, 1))
			require.NoError(t, err)
			time.Sleep(time.Hour) // the client's
			require.NoError(t, ctx.Err())
		}
		go func() {
			time.Sleep(2 * time.Second) // the service's
			_, _ = service.Write([]byte("c"))
		}()
		_, err := w.Read(make([]byte, 1))
		require.NoError(t, err)
		require.ErrorIs(t, context.Cause(ctx), errSilent)
	})
}

// What counts is what the service gets.
func TestServiceGetsWhatCounts(t *testing.T) {
	t.Parallel()
	f := startTold(t, "", nil)
	first := f.send(t, http.MethodPost, "/", "k", "Content-Type: application/json", "Connection: content-type")
	require.Empty(t, told(t, first)["Content-Type"])
	require.Equal(t, "key-reused", f.send(t, http.MethodPost, "/", "k", "Content-Type: application/json").Header.Get("Idempotency-Error"))
	require.Equal(t, http.StatusUnauthorized, f.send(t, http.MethodPost, "/", "l", "Connection: authorization").Status)

	for i, target := range []string{"/orders/a%2Fb%C3%bc", "/a%2f..%2f%2e%2e/(x)'y?q=1", "/plain%20path", "//a/b"} {
		_, in := f.dial(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\nIdempotency-Key: t%d\r\nContent-Length: 0\r\n\r\n", target, i))
		require.Equal(t, []string{target}, told(t, received(t, in))["Target"])
	}
}

// A service that reads an underscore in a name as a hyphen gets no field with a meaning from a client but in the spelling
// that has it.
func TestNoFieldHasTwoSpellings(t *testing.T) {
	t.Parallel()
	spellings := []string{
		"Idempotency_Attempt: 9", "idempotency_outcome: final", "Idempotency_Derived-Key: d", "Idempotency_Key: other", "X_Forwarded_For: 6.6.6.6",
		"X-Forwarded_Proto: https", "X_forwarded_user: root", "Traceparent_: 1", "Trace_parent: 1", "X_Other: 1", "X_Tenant: victim", "x-tenant_: victim",
	}
	for scope, passed := range map[string][]string{
		"authorization":   {"Traceparent_", "Trace_parent", "X_other", "X_tenant", "X-Tenant_"},
		"shared":          {"Traceparent_", "Trace_parent", "X_other", "X_tenant", "X-Tenant_"},
		"header:x-tenant": {"Traceparent_", "Trace_parent", "X_other", "X-Tenant_"},
		"header:x_tenant": {"Traceparent_", "Trace_parent", "X_other", "X_tenant", "X-Tenant_"},
	} {
		for _, trust := range []bool{false, true} {
			f := startTold(t, "", func(c *Config) { c.Scope, c.TrustForwarded = scope, trust })
			fields := spellings
			if scope != "header:x_tenant" {
				fields = append(slices.Clone(spellings), "X-Tenant: me")
			}
			var odd []string
			for name := range told(t, f.send(t, http.MethodPost, "/", "m", fields...)) {
				if strings.Contains(name, "_") {
					odd = append(odd, name)
				}
			}
			require.ElementsMatch(t, passed, odd, scope)
		}
	}
}

// Without a key too, an outcome stays behind, and a service that is away is told of as such.
func TestWithoutAKey(t *testing.T) {
	t.Parallel()
	odd := startRaw(t, listen(t), func(_ int, c net.Conn) bool {
		_, err := io.WriteString(c, "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n")
		return err == nil
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		require.Equal(t, http.StatusBadGateway, startFront(t, odd.url, nil).send(t, method, "/", "").Status)
	}

	announced := []string{"Trailer: Idempotency-Outcome, X-Sum\r\n", ""}
	s := startRaw(t, listen(t), func(n int, c net.Conn) bool {
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced[n-1]+"\r\n0\r\nIdempotency-Outcome: final\r\nX-Sum: 1\r\n\r\n")
		return err == nil
	})
	f := startFront(t, s.url, nil)
	for range announced {
		got := f.send(t, http.MethodPost, "/", "")
		require.Empty(t, got.Trailer.Get("Idempotency-Outcome"))
		require.Equal(t, "1", got.Trailer.Get("X-Sum"))
	}

	away := listen(t)
	away.Close()
	got := startFront(t, "http://"+away.Addr().String(), nil).send(t, http.MethodGet, "/", "")
	require.Equal(t, http.StatusBadGateway, got.Status)
	require.Contains(t, got.Body, "has not reached it")
}
