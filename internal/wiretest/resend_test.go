package wiretest

import (
	"cmp"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// An answer can be lost on its way: the handler has run, its answer is recorded, and the
// connection breaks before the client sees it. Go's own client then sends a request with
// a key again, without being asked and without telling, and its caller sees one answer.
//
// It does so if all of this is true, and returns an error otherwise:
//   - the request has the header field Idempotency-Key or X-Idempotency-Key (other
//     methods than GET, HEAD, OPTIONS and TRACE are not sent again without);
//   - the body, if there is one, can be read again: Request.GetBody is set, as
//     http.NewRequest does for bytes.Buffer, bytes.Reader and strings.Reader;
//   - the connection had been used before: on a new one the server is not expected to
//     hang up;
//   - no byte of the answer has arrived;
//   - it speaks HTTP/1.1: over HTTP/2 a lost connection is an error.
//
// So a server that takes such a field has to protect its handlers from the standard
// client already, and a client cannot count on it: the caller retries, with the same key.
func TestGoClientSendsAgain(t *testing.T) {
	const key, xKey = "Idempotency-Key", "X-Idempotency-Key"
	type row struct {
		cut    cut
		header string
		fresh  bool // the connection has not been used before
		stream bool // the body cannot be read again
		http2  bool
		resent bool
	}
	guardtest.Each(t, map[string]row{
		"connection closed":                    {cut: closed, header: key, resent: true},
		"connection reset":                     {cut: reset, header: key, resent: true},
		"other name of the header":             {cut: closed, header: xKey, resent: true},
		"no key":                               {cut: closed},
		"body that cannot be read again":       {cut: closed, header: key, stream: true},
		"first request of the connection":      {cut: closed, header: key, fresh: true},
		"a part of the answer has got through": {cut: closedMidway, header: key},
		"HTTP/2":                               {cut: closed, header: key, http2: true},
	}, func(t *testing.T, c row) {
		var listener cutter
		charge := &guardtest.Counter{}
		charge.Handler = func(w http.ResponseWriter, _ *http.Request, run int64) {
			if run == 1 {
				listener.next.Store(int32(c.cut))
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, strings.Repeat("charged ", 20))
		}
		// The answer is recorded before it is sent, so that nobody has to wait for
		// it. Over HTTP/2 the connection may be cut earlier: at a frame of its own.
		opts := []idempotency.Option{idempotency.WithHeader(cmp.Or(c.header, key))}
		if c.http2 {
			opts = append(opts, idempotency.WithWait(10*time.Second))
		}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(charge)
		var sent atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				sent.Add(1)
				guarded.ServeHTTP(w, r)
			}
		}))
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		listener.Listener, server.Listener = server.Listener, &listener
		if c.http2 {
			server.EnableHTTP2 = true
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		client := server.Client()

		pay := func() (*http.Response, string, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(guardtest.DefaultBody))
			require.NoError(t, err)
			if c.header != "" {
				r.Header.Set(c.header, "order-1")
			}
			if c.stream {
				r.GetBody = nil
			}
			resp, err := client.Do(r)
			if err != nil {
				return nil, "", err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return resp, string(body), err
		}

		if !c.fresh {
			resp, err := client.Get(server.URL)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
		resp, body, err := pay() //nolint:bodyclose // pay closes it
		if !c.resent {
			require.Error(t, err)
			require.EqualValues(t, 1, sent.Load())
			resp, body, err = pay() //nolint:bodyclose // as above; a careful caller does the same
		}
		require.NoError(t, err)
		require.EqualValues(t, 2, sent.Load())
		require.Equal(t, http.StatusCreated, resp.StatusCode)
		require.Equal(t, strings.Repeat("charged ", 20), body)
		if c.header == "" {
			require.EqualValues(t, 2, charge.Runs.Load(), "this is what keys are for")
			return
		}
		require.Equal(t, "true", resp.Header.Get("Idempotent-Replayed"))
		require.EqualValues(t, 1, charge.Runs.Load())
	})
}

// A cut is a way in which a connection ends at the moment when the server begins to
// send.
type cut int32

const (
	notCut       cut = iota
	closed           // the client reads an end of file
	reset            // the client reads an error
	closedMidway     // the client reads a part of the answer, then an end of file
)

// A cutter is a listener whose connections can be cut.
type cutter struct {
	net.Listener
	next atomic.Int32 // the cut that the next write of a connection meets
}

func (l *cutter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &cutConn{conn, l}, nil
}

type cutConn struct {
	net.Conn
	listener *cutter
}

func (c *cutConn) Write(p []byte) (int, error) {
	n := 0
	switch cut(c.listener.next.Swap(int32(notCut))) {
	case notCut:
		return c.Conn.Write(p)
	case reset:
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
	case closedMidway:
		n, _ = c.Conn.Write(p[:len(p)-1])
	}
	_ = c.Close()
	return n, net.ErrClosed
}
