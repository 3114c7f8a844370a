package bench_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/load"
)

// What users feel: a server of net/http behind sockets, with protection and without. Clients and
// server share the machine.

// socketClients is how many connections send requests at once.
const socketClients = 16

// A socketRow is one kind of request over sockets.
type socketRow struct {
	name    string
	handler http.Handler
	key     func() string // nil for none

	perSecond []float64 // by round
	p99       []time.Duration
}

// writeSocketTable measures requests over sockets, in turn, and writes the table.
func writeSocketTable(t *testing.T, out io.Writer, work load.Work) {
	t.Helper()
	protect := func() http.Handler {
		return guarded(idempotency.NewMemoryStore(idempotency.WithMaxEntries(100_000_000), idempotency.WithMaxBytes(1<<40)), work,
			idempotency.WithTTL(time.Second))
	}
	replayed := load.Key()
	rows := []*socketRow{
		{name: "unprotected", handler: work},
		{name: "no key", handler: protect()},
		{name: "first run", handler: protect(), key: load.Key},
		{name: "replay", handler: guarded(idempotency.NewMemoryStore(), work), key: func() string { return replayed }},
	}
	for range *rounds {
		for _, r := range rows {
			r.round(t, work)
		}
	}
	fmt.Fprint(out, "\n| request | requests per second | of unprotected | p99 |\n|---|---:|---:|---:|\n")
	for _, r := range rows {
		shares := make([]float64, len(r.perSecond))
		for i := range shares {
			shares[i] = r.perSecond[i] / rows[0].perSecond[i]
		}
		fmt.Fprintf(out, "| %s | %.0f | %.2f | %v |\n", r.name, median(r.perSecond), median(shares), median(r.p99).Round(time.Microsecond))
	}
}

// round sends requests on all connections for the row's share of time.
func (r *socketRow) round(t *testing.T, work load.Work) {
	t.Helper()
	server := httptest.NewServer(r.handler)
	defer server.Close()
	if r.key != nil { // a replay needs an answer that is recorded
		c, err := newSocketClient(server, work)
		require.NoError(t, err)
		require.NoError(t, c.send(r.key()))
		require.NoError(t, c.conn.Close())
	}
	var clients sync.WaitGroup
	times := make([][]time.Duration, socketClients)
	start := time.Now()
	for i := range times {
		c, err := newSocketClient(server, work)
		require.NoError(t, err)
		clients.Go(func() {
			defer c.conn.Close()
			for first := true; first || time.Since(start) < *share; first = false {
				key := ""
				if r.key != nil {
					key = r.key()
				}
				sent := time.Now()
				if err := c.send(key); err != nil {
					t.Errorf("%s: %v", r.name, err)
					return
				}
				times[i] = append(times[i], time.Since(sent))
			}
		})
	}
	clients.Wait()
	took := time.Since(start)
	all := slices.Sorted(slices.Values(slices.Concat(times...)))
	r.perSecond = append(r.perSecond, float64(len(all))/took.Seconds())
	r.p99 = append(r.p99, all[len(all)*99/100])
}

// A socketClient sends one request after another on a connection, and does as little as it can for
// that: it shares the processors with the server.
type socketClient struct {
	conn   net.Conn
	answer *bufio.Reader
	out    bytes.Buffer
	work   load.Work
}

func newSocketClient(server *httptest.Server, work load.Work) (*socketClient, error) {
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		return nil, err
	}
	return &socketClient{conn: conn, answer: bufio.NewReader(conn), work: work}, nil
}

func (c *socketClient) send(key string) error {
	c.out.Reset()
	fmt.Fprintf(&c.out, "POST /charges HTTP/1.1\r\nHost: bench.test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", len(c.work.In))
	if key != "" {
		fmt.Fprintf(&c.out, "Idempotency-Key: %s\r\n", key)
	}
	c.out.WriteString("\r\n")
	c.out.Write(c.work.In)
	if _, err := c.conn.Write(c.out.Bytes()); err != nil {
		return err
	}
	status, err := c.answer.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 201 ")) {
		return fmt.Errorf("answered %q", status)
	}
	length := 0
	for {
		line, err := c.answer.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(value))
		}
	}
	if length != len(c.work.Out) {
		return fmt.Errorf("an answer of %d bytes", length)
	}
	_, err = c.answer.Discard(length)
	return err
}
