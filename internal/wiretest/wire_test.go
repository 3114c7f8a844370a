package wiretest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A wire is a real server to which a test sends arbitrary bytes, like a client that breaks
// the rules.
type wire struct {
	addr  string
	store *idempotency.MemoryStore
	h     *guardtest.Counter
	guard *idempotency.Guard
}

// wirePatience is the longest that a test waits. Nothing here should take that long.
const wirePatience = time.Minute

// serveWire serves a handler behind a guard that requires a key. The test fails if
// net/http has to recover a panic.
func serveWire(t *testing.T, h *guardtest.Counter, opts ...idempotency.Option) *wire {
	t.Helper()
	w := &wire{store: idempotency.NewMemoryStore(), h: h}
	w.guard = guardtest.NewGuard(t, w.store, append([]idempotency.Option{idempotency.WithRequired(true)}, opts...)...)
	w.serve(t, &http.Server{Handler: w.guard.Handler(h)})
	return w
}

func (w *wire) serve(t *testing.T, server *http.Server) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var said guardtest.LockedBuffer
	server.ErrorLog = log.New(&said, "", 0)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		served.Wait()
		require.NotContains(t, said.String(), "panic")
	})
	w.addr = listener.Addr().String()
}

// A wireConn is one connection to a wire.
type wireConn struct {
	*net.TCPConn
	in *bufio.Reader
}

func (w *wire) dial(t testing.TB) *wireConn {
	t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(wirePatience)))
	return &wireConn{conn.(*net.TCPConn), bufio.NewReader(conn)}
}

// send writes bytes. The server may stop reading before their end.
func (c *wireConn) send(text string) { _, _ = io.WriteString(c, text) }

// receive reads one answer. It returns false when no answer follows.
func (c *wireConn) receive(t testing.TB) (guardtest.Reply, bool) {
	t.Helper()
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		require.True(t, errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "reset"), "%v", err)
		return guardtest.Reply{}, false
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if resp.Close {
		resp.Header.Set("Connection", "close") // ReadResponse takes it out
	}
	got := guardtest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		require.NoError(t, json.Unmarshal(body, &got.Problem))
	}
	return got, true
}

// ask sends bytes on a new connection and returns all answers to them.
func (w *wire) ask(t testing.TB, text string) (replies []guardtest.Reply) {
	t.Helper()
	conn := w.dial(t)
	var sent sync.WaitGroup
	sent.Go(func() { conn.send(text) }) // the server may answer before it has read all
	for {
		got, ok := conn.receive(t)
		if !ok {
			_ = conn.Close()
			sent.Wait()
			return replies
		}
		replies = append(replies, got)
	}
}

// message returns a request made of a request line, fields with their line ends, and a
// body.
func message(line, fields, body string) string {
	return line + " HTTP/1.1\r\n" + fields + "\r\n" + body
}

const (
	wireHost  = "Host: api.test\r\n"
	wireClose = "Connection: close\r\n"
	wireKey   = "Idempotency-Key: k\r\n"
	wireEmpty = "Content-Length: 0\r\n"
	// wirePlain is a complete request that is the last of its connection.
	wirePlain = wireHost + wireKey + wireEmpty + wireClose
)

// A key must be exactly one well-formed field value. Otherwise net/http or the guard
// refuses the request, the store sees nothing of it, and the next user of the connection is
// served.
func TestWireRefusesBadKeys(t *testing.T) {
	type row struct {
		fields string
		code   problem.Code // or else net/http refuses
	}
	guardtest.Each(t, map[string]row{
		"folded":                      {"Idempotency-Key: a\r\n b\r\n", problem.KeyInvalid},
		"folded with a tab":           {"Idempotency-Key: a\r\n\tb\r\n", problem.KeyInvalid},
		"folded to a list":            {"Idempotency-Key: a,\r\n b\r\n", problem.KeyInvalid},
		"eight bits":                  {"Idempotency-Key: cl\xe9\r\n", problem.KeyInvalid},
		"UTF-8":                       {"Idempotency-Key: clé\r\n", problem.KeyInvalid},
		"UTF-8 in quotes":             {"Idempotency-Key: \"clé\"\r\n", problem.KeyInvalid},
		"NUL":                         {"Idempotency-Key: a\x00b\r\n", ""},
		"bare CR":                     {"Idempotency-Key: a\rb\r\n", ""},
		"DEL":                         {"Idempotency-Key: a\x7fb\r\n", ""},
		"ANSI escape":                 {"Idempotency-Key: \x1b[31mred\r\n", ""},
		"two fields":                  {wireKey + "Idempotency-Key: l\r\n", problem.KeyInvalid},
		"two equal fields":            {wireKey + wireKey, problem.KeyInvalid},
		"two fields, spelled apart":   {wireKey + "IDEMPOTENCY-KEY: k\r\n", problem.KeyInvalid},
		"two fields, one empty":       {wireKey + "idempotency-key:\r\n", problem.KeyInvalid},
		"list":                        {"Idempotency-Key: k, l\r\n", problem.KeyInvalid},
		"empty":                       {"Idempotency-Key:\r\n", problem.KeyInvalid},
		"blank":                       {"Idempotency-Key: \t \r\n", problem.KeyInvalid},
		"blank, folded":               {"Idempotency-Key: \r\n \r\n", problem.KeyInvalid},
		"underscore":                  {"Idempotency_Key: k\r\n", problem.KeyMissing},
		"space before the colon":      {"Idempotency-Key : k\r\n", ""},
		"no colon":                    {"Idempotency-Key\r\n", ""},
		"256 bytes":                   {"Idempotency-Key: " + strings.Repeat("k", 256) + "\r\n", problem.KeyInvalid},
		"a megabyte":                  {"Idempotency-Key: " + strings.Repeat("k", 1<<20) + "\r\n", problem.KeyInvalid},
		"two megabytes":               {"Idempotency-Key: " + strings.Repeat("k", 2<<20) + "\r\n", ""},
		"a thousand fields":           {strings.Repeat(wireKey, 1000), problem.KeyInvalid},
		"in the trailer instead":      {"Trailer: Idempotency-Key\r\n", problem.KeyMissing},
		"in the query instead":        {"X-Key: k\r\n", problem.KeyMissing},
		"hop by hop, named as option": {"Connection: idempotency-key\r\n", problem.KeyMissing},
	}, func(t *testing.T, tt row) {
		w := serveWire(t, &guardtest.Counter{})
		replies := w.ask(t, message("POST /charges?idempotency-key=k", wireHost+tt.fields+wireEmpty+wireClose, ""))
		require.Len(t, replies, 1)
		if tt.code != "" {
			guardtest.RequireProblem(t, replies[0], http.StatusBadRequest, tt.code)
			require.Empty(t, replies[0].Header.Values("Idempotency-Key"), "a key that is refused is not echoed")
		} else {
			require.GreaterOrEqual(t, replies[0].Status, 400)
			require.Less(t, replies[0].Status, 500)
		}
		w.requireUntouched(t)
	})
}

// requireUntouched checks that nothing has run, that nothing is claimed, and that the
// server still works.
func (w *wire) requireUntouched(t *testing.T) {
	t.Helper()
	require.Zero(t, w.h.Runs.Load())
	require.Zero(t, w.store.Len())
	require.Equal(t, http.StatusCreated, w.ask(t, message("POST /charges", wirePlain, ""))[0].Status)
}

// All valid spellings name the same key, and fields that merely look similar do not
// interfere.
func TestWireKeysThatAreTheSame(t *testing.T) {
	w := serveWire(t, &guardtest.Counter{})
	ask := func(fields string) guardtest.Reply {
		replies := w.ask(t, message("POST /charges", wireHost+fields+wireEmpty+wireClose, ""))
		require.Len(t, replies, 1)
		return replies[0]
	}
	require.False(t, ask(wireKey).Replayed())
	for _, fields := range []string{
		"idempotency-KEY:k\r\n", "Idempotency-Key: \t k \t\r\n", "Idempotency-Key: \"k\"\r\n",
		"Idempotency-Key: \"k\";a=1\r\n", "Idempotency-Key:\r\n k\r\n",
		wireKey + "Idempotency_Key: l\r\n", "Idempotency_Key: l\r\n" + wireKey,
		wireKey + "X-Idempotency-Key: l\r\n", wireKey + "Connection: idempotency-key\r\n",
	} {
		require.True(t, ask(fields).Replayed(), "%q", fields)
	}
	require.EqualValues(t, 1, w.h.Runs.Load())
	require.Equal(t, 1, w.store.Len())
}

// It does not matter by which name and in which form a retry addresses the service. Its
// path and query do matter.
func TestWireRequestTargets(t *testing.T) {
	w := serveWire(t, &guardtest.Counter{})
	ask := func(target, host string) guardtest.Reply {
		replies := w.ask(t, message("POST "+target, host+wireKey+wireEmpty+wireClose, ""))
		require.Len(t, replies, 1)
		return replies[0]
	}
	require.False(t, ask("/charges?a=1", wireHost).Replayed())
	for _, target := range []string{
		"http://other.test/charges?a=1", "https://other.test:8443/charges?a=1", "foo://x/charges?a=1",
	} {
		require.True(t, ask(target, wireHost).Replayed(), target)
	}
	require.True(t, ask("/charges?a=1", "Host: other.test:1\r\n").Replayed())
	for _, target := range []string{
		"/charges", "/charges?a=1#", "/charges?a=2", "/Charges?a=1", "/charges/?a=1", "//charges?a=1", "/./charges?a=1",
		"/charge%73?a=1", "//other.test/charges?a=1", "http://other.test?a=1", "https://user:secret@other.test:8443/charges?a=1", "*", "mailto:charges", "mailto:others",
	} {
		guardtest.RequireProblem(t, ask(target, wireHost), http.StatusConflict, problem.KeyReused)
	}
	for _, host := range []string{"", wireHost + wireHost, "Host: a b\r\n", "Host: a\x00\r\n"} {
		require.Equal(t, http.StatusBadRequest, ask("/charges?a=1", host).Status, "%q", host)
	}
	require.EqualValues(t, 1, w.h.Runs.Load())
	require.Equal(t, 1, w.store.Len())
}

// Two duplicates in one packet on one connection are one run.
func TestWirePipelinedDuplicates(t *testing.T) {
	w := serveWire(t, &guardtest.Counter{})
	one := message("POST /charges", wireHost+wireKey+"Content-Length: 2\r\n", "{}")
	other := message("POST /charges", wireHost+wireKey+"Content-Length: 2\r\n"+wireClose, "[]")
	replies := w.ask(t, strings.Repeat(one, 20)+other)
	require.Len(t, replies, 21)
	require.False(t, replies[0].Replayed())
	for _, got := range replies[1:20] {
		guardtest.RequireReplay(t, replies[0], got)
	}
	guardtest.RequireProblem(t, replies[20], http.StatusConflict, problem.KeyReused)
	require.EqualValues(t, 1, w.h.Runs.Load())
}

func TestMain(m *testing.M) { os.Exit(guardtest.Main(m)) }

// FuzzRequest sends each request that net/http can read to a guard, twice. The handler runs
// at most once, reads exactly what the client sent, and runs only under a recorded key. The
// second answer equals the first.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(message("POST /charges", wirePlain, "")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read := func() *http.Request {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
			if err != nil {
				return nil
			}
			return r
		}
		first, second, bare := read(), read(), read()
		if first == nil || first.Method != http.MethodPost {
			return
		}
		store, runs := idempotency.NewMemoryStore(idempotency.WithMaxEntries(2)), 0
		guard, err := idempotency.New(store, guardtest.TenantScope, idempotency.WithRequired(true), idempotency.WithLimits(idempotency.Limits{RequestBody: 1000}))
		require.NoError(t, err)
		h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runs++
			body, err := io.ReadAll(r.Body)
			want, bareErr := io.ReadAll(bare.Body)
			if err != nil || bareErr != nil || !bytes.Equal(body, want) || r.ContentLength != int64(len(want)) {
				t.Errorf("read %q, %v of %q, %v", body, err, want, bareErr)
			}
			_, _ = w.Write(body)
		}))
		answers := make([]*httptest.ResponseRecorder, 2)
		for i, r := range []*http.Request{first, second} {
			answers[i] = httptest.NewRecorder()
			h.ServeHTTP(answers[i], r)
		}
		if runs != store.Len() || runs > 1 {
			t.Errorf("%d runs, %d records", runs, store.Len())
		}
		a, b := answers[0], answers[1]
		if a.Code != b.Code || !bytes.Equal(a.Body.Bytes(), b.Body.Bytes()) || a.Code >= 500 {
			t.Errorf("%d %s, and then %d %s", a.Code, a.Body, b.Code, b.Body)
		}
		if replayed := b.Header().Get("Idempotent-Replayed") != ""; replayed != (runs == 1) {
			t.Errorf("%d runs, replayed: %v", runs, replayed)
		}
		if runs == 0 && (a.Code < 400 || !json.Valid(a.Body.Bytes())) {
			t.Errorf("refused with %d %s", a.Code, a.Body)
		}
	})
}
