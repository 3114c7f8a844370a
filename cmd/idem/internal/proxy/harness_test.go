package proxy

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// This file has proxies in the process of the test, and services that misbehave.

// A front is a proxy in front of a service.
type front struct {
	*httptest.Server
	log *guardtest.LockedBuffer
}

// startFront serves a proxy for a service, with a store in memory.
func startFront(t *testing.T, to string, change func(*Config)) *front {
	t.Helper()
	c := Default()
	c.To = to
	if change != nil {
		change(&c)
	}
	log := new(guardtest.LockedBuffer)
	logger := slog.New(slog.NewJSONHandler(log, nil))
	store := idempotency.NewMemoryStore()
	table, handler, err := c.build(store, logs{logger, logger.Handler()})
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelInfo)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, table.root.Shutdown(t.Context()))
	})
	return &front{s, log}
}

// An answer is what a client got.
type answer struct {
	*http.Response
	body string
}

// send sends a request with a key and a caller. Fields are "Name: value"; a name with a minus in front is taken away.
func (f *front) send(t *testing.T, method, path, key string, fields ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer alice")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return f.do(t, r, fields...)
}

func (f *front) do(t *testing.T, r *http.Request, fields ...string) answer {
	t.Helper()
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		if gone, ok := strings.CutPrefix(name, "-"); ok {
			r.Header.Del(gone)
			continue
		}
		r.Header.Add(name, value)
	}
	resp, err := f.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp, string(body)}
}

// A rawService answers each request as a function of its number says, byte by byte.
type rawService struct {
	net.Listener
	url string

	mu    sync.Mutex
	seen  []*http.Request
	conns []net.Conn
}

// startRaw serves. The function gets the number of the request, from 1, and the connection, on which it answers;
// if it returns false the connection is closed.
func startRaw(t *testing.T, l net.Listener, answer func(n int, c net.Conn) bool) *rawService {
	t.Helper()
	s := &rawService{Listener: l, url: "http://" + l.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			conns.Go(func() { s.serve(c, answer) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		conns.Wait()
	})
	return s
}

func (s *rawService) serve(c net.Conn, answer func(n int, c net.Conn) bool) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, r)
		n := len(s.seen)
		s.mu.Unlock()
		if !answer(n, c) {
			return
		}
	}
}

func (s *rawService) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

const (
	wholeAnswer  = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndone"
	halfDeclared = "HTTP/1.1 201 Created\r\nContent-Length: 40\r\n\r\ndone"
	halfChunked  = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ndone\r\n"
)
