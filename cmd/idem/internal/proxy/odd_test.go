package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// This file has clients and services that take their time, or spell a request in their own way.

// dial sends a request by hand.
func (f *front) dial(t *testing.T, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(f.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	return c, bufio.NewReader(c)
}

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
	f := startFrontOn(t, &c, newTransport(false), 300*time.Millisecond)
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
	s := httptest.NewServer(http.HandlerFunc(told))
	defer s.Close()
	f := startFront(t, s.URL, nil)
	header := func(a answer) (h http.Header) {
		require.NoError(t, json.Unmarshal([]byte(a.body), &h), a.body)
		return h
	}
	first := f.send(t, http.MethodPost, "/", "k", "Content-Type: application/json", "Connection: content-type")
	require.Empty(t, header(first)["Content-Type"])
	require.Equal(t, "key-reused", f.send(t, http.MethodPost, "/", "k", "Content-Type: application/json").Header.Get("Idempotency-Error"))
	require.Equal(t, http.StatusUnauthorized, f.send(t, http.MethodPost, "/", "l", "Connection: authorization").StatusCode)

	for i, target := range []string{"/orders/a%2Fb%C3%bc", "/a%2f..%2f%2e%2e/(x)'y?q=1", "/plain%20path", "//a/b"} {
		_, in := f.dial(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer alice\r\nIdempotency-Key: t%d\r\nContent-Length: 0\r\n\r\n", target, i))
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, []string{target}, header(answer{body: string(body)})["Target"])
	}
}

// A service that reads an underscore in a name as a hyphen gets no field with a meaning from a client but in the spelling
// that has it.
func TestNoFieldHasTwoSpellings(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(told))
	defer s.Close()
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
			f := startFront(t, s.URL, func(c *Config) { c.Scope, c.TrustForwarded = scope, trust })
			fields := spellings
			if scope != "header:x_tenant" {
				fields = append(slices.Clone(spellings), "X-Tenant: me")
			}
			got := f.send(t, http.MethodPost, "/", "m", fields...)
			require.Equal(t, http.StatusOK, got.StatusCode, got.body)
			var h http.Header
			require.NoError(t, json.Unmarshal([]byte(got.body), &h))
			var odd []string
			for name := range h {
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
		require.Equal(t, http.StatusBadGateway, startFront(t, odd.url, nil).send(t, method, "/", "").StatusCode)
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
	require.Equal(t, http.StatusBadGateway, got.StatusCode)
	require.Contains(t, got.body, "has not reached it")
}
