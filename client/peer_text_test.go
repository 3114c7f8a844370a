package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// Whatever a peer sends, no text of an error and no line of a log holds more than 2 KiB of it.
func TestTextsOfAPeerAreShort(t *testing.T) {
	const flood = "flood"
	long := strings.Repeat(flood, 1<<20)
	failing := answer{do: func(r *http.Request) (*http.Response, error) {
		resp := answer{status: 200, body: "{", chunks: true}.response(r)
		resp.Body = io.NopCloser(io.MultiReader(resp.Body, failingReader{errors.New(long)}))
		return resp, nil
	}}
	document := answer{do: func(r *http.Request) (*http.Response, error) {
		resp, err := failing.do(r)
		resp.StatusCode, resp.Header = 400, http.Header{"Content-Type": {"application/problem+json"}}
		return resp, err
	}}
	get := func(ctx context.Context) *http.Request { return request(ctx, http.MethodGet, place, http.NoBody) }
	charge := func(ctx context.Context) *http.Request { return post(ctx, place, "{}") }
	for name, c := range map[string]struct {
		base    http.RoundTripper
		request func(context.Context) *http.Request
	}{
		"a redirect, in doubt":    {answering(answer{err: errReset}, answer{status: 307, header: map[string]string{"Location": "http://" + long}}), charge},
		"bytes that are quoted":   {answering(answer{err: errReset}, answer{status: 307, header: map[string]string{"Location": strings.Repeat("\x00", 1<<20)}}), charge},
		"an error":                {answering(answer{err: errors.New(long)}), charge},
		"an error, without a key": {answering(answer{err: errors.New(long)}), get},
		"an error, sent once":     {answering(answer{err: errors.New(long)}), func(ctx context.Context) *http.Request { return charge(client.WithoutKey(ctx)) }},
		"a body":                  {answering(failing), charge},
		"a body, without a key":   {answering(failing), get},
		"a document":              {answering(document), charge},
		"a real header": {newBase(t), func(ctx context.Context) *http.Request {
			return post(ctx, serveRaw(t, "HTTP/1.1 200 OK\r\n"+long[:1<<18]+"\r\n\r\n"), "{}")
		}},
		"a real length": {newBase(t), func(ctx context.Context) *http.Request {
			return post(ctx, serveRaw(t, "HTTP/1.1 200 OK\r\nContent-Length: "+long[:1<<18]+"\r\n\r\n"), "{}")
		}},
		"a host of a redirect": {answering(answer{status: 502}), func(ctx context.Context) *http.Request { return post(ctx, "http://"+long+"/", "{}") }},
		"a body that is handed on": {answering(answer{status: 201}), func(ctx context.Context) *http.Request {
			return request(ctx, http.MethodPost, place, failingReader{errors.New(long)})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			e := new(events)
			b := new(breaker)
			transport := newTransport(t, c.base, quick, client.WithObserver(e.observe), client.WithAttempts(2), client.WithBreaker(b),
				client.WithLogger(slog.New(slog.NewJSONHandler(&logged, nil))))
			_, err := send(transport, c.request(t.Context()))
			errs := append([]error{err}, b.results...)
			for _, event := range e.all {
				errs = append(errs, event.Err)
			}
			var failed *client.Error
			if errors.As(err, &failed) {
				for _, a := range failed.Attempts {
					errs = append(errs, a.Err)
				}
			}
			const own = 300 // bytes that the client says itself
			for _, err := range errs {
				require.True(t, err == nil || len(err.Error()) < 2<<10+own)
			}
			var line struct{ Host, Error string }
			if logged.Len() > 0 {
				require.NoError(t, json.Unmarshal(logged.Bytes(), &line))
				require.Less(t, len(line.Error), 2<<10+own)
				require.Less(t, len(line.Host), 2<<10+own)
			}
		})
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// serveRaw starts a server that answers each request with some bytes, and returns its URL.
func serveRaw(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 4<<10))
				_, _ = io.WriteString(conn, answer)
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/"
}
