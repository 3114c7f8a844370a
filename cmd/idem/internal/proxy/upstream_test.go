package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// net/http repeats a request with a key and without a body when the connection that it was sent on breaks, if
// that was in use before. The service that got it may have had its effect.
func TestRequestIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]struct {
		method, path string
		fields       []string
	}{
		"a run":                        {http.MethodPost, "/", nil},
		"a run with the other field":   {http.MethodPost, "/", []string{"X-Idempotency-Key: k"}},
		"a run of a method that reads": {http.MethodGet, "/reports", nil},
		"an unprotected route":         {http.MethodPost, "/open", nil},
		"an unprotected method":        {http.MethodDelete, "/", nil},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+" over "+scheme, func(t *testing.T) {
				t.Parallel()
				l, transport := listen(t), newTransport(false, false)
				if scheme == "https" {
					l, transport.TLSClientConfig = secure(t, l)
				}
				s := startRaw(t, l, func(n int, c net.Conn) bool {
					if n == 2 {
						return false
					}
					_, err := c.Write([]byte(wholeAnswer))
					return err == nil
				})
				off := false
				c := Default()
				c.To = scheme + "://" + l.Addr().String()
				c.Routes = []Route{{Match: "/open", Protect: &off}, {Match: "GET /reports"}}
				f := startFrontOn(t, &c, transport, bodyTime)

				first := f.send(t, request.method, request.path, "a", request.fields...)
				require.Equal(t, http.StatusCreated, first.Status)
				second := f.send(t, request.method, request.path, "b", request.fields...)
				require.GreaterOrEqual(t, second.Status, http.StatusInternalServerError)
				require.Equal(t, 2, s.count(), "the request was repeated")
			})
		}
	}
}

// Behind an answer without a body, a service may send one that is not the answer to the next request. So the connection is not used
// again, and the next request finds another one.
func TestConnectionBehindAnAnswerWithoutABody(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"HEAD": "200 OK\r\nContent-Length: 9", "204": "204 No Content\r\nContent-Length: 9", "304": "304 Not Modified", "204 in chunks": "204 No Content\r\nTransfer-Encoding: chunked",
	} {
		var first net.Conn
		l, transport := listen(t), newTransport(false, false)
		s := startRaw(t, l, func(n int, c net.Conn) bool {
			text := wholeAnswer
			if n == 1 {
				first, text = c, "HTTP/1.1 "+head+"\r\n\r\n"
			} else if c == first {
				text = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n" // the late body, as it looks to a client
			}
			_, err := c.Write([]byte(text))
			return err == nil
		})
		c := Default()
		c.To = "http://" + l.Addr().String()
		f := startFrontOn(t, &c, transport, bodyTime)
		method := http.MethodPost
		if name == "HEAD" {
			method = http.MethodHead
		}
		f.send(t, method, "/", "a")
		got := f.sendBody(t, http.MethodPost, "/", "body", "Authorization: Bearer alice", "Idempotency-Key: b")
		require.Equal(t, http.StatusCreated, got.Status, name)
		require.Equal(t, 2, s.count(), name)
	}
}

// Such a connection is not kept either: a request whose body cannot be sent twice would have it, and be refused.
func TestNoRequestIsRefusedBehindAnAnswerWithoutABody(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match")+r.Header.Get("If-Modified-Since") != "" {
			w.WriteHeader(http.StatusNotModified)
		}
	}))
	t.Cleanup(service.Close)
	f := startFront(t, service.URL, nil)
	for range 10 {
		for _, before := range [][]string{{http.MethodHead}, {http.MethodGet, "If-None-Match: x"}, {http.MethodGet, "If-Modified-Since: Sat, 28 Nov 2026 23:00:00 GMT"}} {
			f.sendBody(t, before[0], "/", "", before[1:]...)
			got := f.sendBody(t, http.MethodPost, "/", "body", "Authorization: Bearer alice")
			require.Equal(t, http.StatusOK, got.Status, before)
		}
	}
}

// What comes later than any answer is told from the next one only where no connection is used twice.
func TestFreshConnectionsTakeNoRest(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		for _, fresh := range []bool{true, false} {
			var first net.Conn
			l, transport := listen(t), newTransport(false, fresh)
			if scheme == "https" {
				l, transport.TLSClientConfig = secure(t, l)
			}
			s := startRaw(t, l, func(n int, c net.Conn) bool {
				text := wholeAnswer
				if n == 1 {
					first = c
				} else if c == first {
					text = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n" + text // the rest of the first answer
				}
				_, err := c.Write([]byte(text))
				return err == nil
			})
			c := Default()
			c.To = scheme + "://" + l.Addr().String()
			f := startFrontOn(t, &c, transport, bodyTime)
			f.send(t, http.MethodPost, "/", "a")
			got := f.send(t, http.MethodPost, "/", "b")
			require.Equal(t, fresh, got.Status == http.StatusCreated, "%s: %d", scheme, got.Status)
			require.Equal(t, 2, s.count())
		}
	}
}

// secure puts TLS around a listener, and returns the configuration of its clients.
func secure(t *testing.T, l net.Listener) (net.Listener, *tls.Config) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	certificates := x509.NewCertPool()
	certificates.AddCert(s.Certificate())
	return tls.NewListener(l, &tls.Config{Certificates: s.TLS.Certificates}), &tls.Config{RootCAs: certificates}
}

// startFrontOn serves a proxy with a transport.
func startFrontOn(t *testing.T, c *Config, transport *http.Transport, body time.Duration) *front {
	t.Helper()
	to, err := url.Parse(c.To)
	require.NoError(t, err)
	table, err := newTable(c, idempotency.NewMemoryStore(), authorization)
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	for _, r := range table.rules {
		r.handler = newForwarder(c, to, &hop{transport, false, r.Timeout}, log)
		if r.guard != nil {
			r.handler = r.guard.Handler(r.handler)
		}
	}
	s := httptest.NewServer(access(table, log.Handler(), body))
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
		require.NoError(t, table.root.Shutdown(t.Context()))
	})
	return &front{Server: s}
}

// A gate that was closed because nothing had left lets nothing out any more, and one that was written to is not
// closed.
func TestGateKnowsWhatHasLeft(t *testing.T) {
	t.Parallel()
	g := &gate{Conn: sink{}, reading: true}
	s := new(sending)
	require.False(t, s.left(), "no connection")
	s.gotConn(httptrace.GotConnInfo{Conn: g})
	require.False(t, s.left())
	_, err := g.Write([]byte("late"))
	require.ErrorIs(t, err, net.ErrClosed)

	used, next := &gate{Conn: sink{}, reading: true}, &gate{Conn: sink{}, reading: true}
	s = new(sending)
	s.gotConn(httptrace.GotConnInfo{Conn: used})
	_, err = used.Write([]byte("bytes"))
	require.NoError(t, err)
	require.True(t, s.left())
	s.gotConn(httptrace.GotConnInfo{Conn: next})
	_, err = next.Write([]byte("again"))
	require.ErrorIs(t, err, net.ErrClosed, "a request that has left finds no second connection")
	require.True(t, s.left())

	foreign := new(sending)
	foreign.gotConn(httptrace.GotConnInfo{Conn: sink{}})
	require.True(t, foreign.left(), "nothing is known of a connection of another kind")
	shared := &sending{shared: true}
	shared.gotConn(httptrace.GotConnInfo{Conn: &gate{Conn: sink{}}})
	require.True(t, shared.left())
}

// What a service sends behind the end of an answer is not the answer to the next request.
func TestRestOfAnAnswerIsNoAnswer(t *testing.T) {
	for name, isAnswer := range map[string]bool{"left of the last one": false, "sent while nothing is asked": false, "the answer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service, conn := net.Pipe()
				g := &gate{Conn: conn}
				read := make(chan error, 1)
				if name != "left of the last one" { // net/http does not read while it has a rest
					go func() {
						_, err := g.Read(make([]byte, 1))
						read <- err
					}()
					synctest.Wait()
				}
				s := new(sending)
				s.gotConn(httptrace.GotConnInfo{Conn: g})
				go func() { _, _ = io.Copy(io.Discard, service) }()
				if isAnswer {
					_, err := g.Write([]byte("request"))
					require.NoError(t, err)
				}
				_, err := service.Write([]byte("1"))
				if name == "left of the last one" {
					require.Error(t, err, "the connection is closed")
				} else {
					require.Equal(t, isAnswer, <-read == nil)
				}
				_, err = g.Write([]byte("more"))
				require.Equal(t, isAnswer, err == nil)
				require.Equal(t, isAnswer, s.left())
				require.NoError(t, g.Close())
			})
		})
	}
}

// A sink takes all that is written to it.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error) { return len(p), nil }

// How the service fails decides what the client is told, and whether the next try runs.
func TestFates(t *testing.T) {
	t.Parallel()
	const second = http.StatusCreated
	type row struct {
		first    string // what the service sends to the first request, before it breaks off
		after    string // what it does after that: break off, hang, or serve on
		recovery string
		status   int // of the first request; 0 if it has no answer
		code     string
		then     int // of the second request
		thenCode string
		seen     int // by the service
	}
	guardtest.Each(t, map[string]row{
		"broken without a byte":              {"", "break", "rerun", 503, "no-answer", second, "", 2},
		"broken without a byte, held":        {"", "break", "hold", 409, "outcome-unknown", 409, "outcome-unknown", 1},
		"broken without a byte, held later":  {"", "break", "hold-after-2", 503, "no-answer", second, "", 2},
		"silent":                             {"", "hang", "rerun", 503, "no-answer", second, "", 2},
		"silent, held":                       {"", "hang", "hold", 409, "outcome-unknown", 409, "outcome-unknown", 1},
		"broken within a body":               {halfDeclared, "break", "rerun", 0, "", second, "", 2},
		"broken within chunks":               {halfChunked, "break", "rerun", 0, "", second, "", 2},
		"broken within chunks, held":         {halfChunked, "break", "hold", 0, "", 409, "outcome-unknown", 1},
		"silent within a body":               {halfDeclared, "hang", "rerun", 0, "", second, "", 2},
		"an answer, and then the connection": {wholeAnswer, "break", "hold", 201, "", second, "", 1},
		"nonsense":                           {"nonsense\r\n\r\n", "break", "rerun", 503, "no-answer", second, "", 2},
		"a status that is none":              {"HTTP/1.1 099 Oh\r\nContent-Length: 4\r\n\r\ndone", "serve", "rerun", 503, "no-answer", second, "", 2},
		"a status that is none, held":        {"HTTP/1.1 000 Oh\r\nContent-Length: 0\r\n\r\n", "serve", "hold", 409, "outcome-unknown", 409, "outcome-unknown", 1},
		"500 of the service":                 {"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "serve", "rerun", 500, "", second, "", 2},
		"500 of the service, held":           {"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", "serve", "hold", 500, "", 409, "outcome-unknown", 1},
		"500 that is definite":               {"HTTP/1.1 500 Oh\r\nIdempotency-Outcome: final\r\nContent-Length: 0\r\n\r\n", "serve", "hold", 500, "", 500, "", 1},
		"500 after nothing":                  {"HTTP/1.1 500 Oh\r\nIdempotency-Outcome: not-executed\r\nContent-Length: 0\r\n\r\n", "serve", "hold", 500, "", second, "", 2},
		"400 that is not definite":           {"HTTP/1.1 400 Oh\r\nIdempotency-Outcome: unknown\r\nContent-Length: 0\r\n\r\n", "serve", "rerun", 503, "no-answer", second, "", 2},
		"400 with a word that nobody knows":  {"HTTP/1.1 400 Oh\r\nIdempotency-Outcome: maybe\r\nContent-Length: 0\r\n\r\n", "serve", "rerun", 503, "no-answer", second, "", 2},
		"an outcome in a trailer":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Idempotency-Outcome\r\n\r\n0\r\nIdempotency-Outcome: not-executed\r\n\r\n", "serve", "hold", 200, "", second, "", 2},
		"an early hint, and then no answer":  {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "break", "rerun", 503, "no-answer", second, "", 2},
		"a refusal of a guard behind":        {"HTTP/1.1 403 No\r\nIdempotency-Error: scope-unresolved\r\nContent-Length: 0\r\n\r\n", "serve", "hold", 403, "scope-unresolved", second, "", 2},
	}, func(t *testing.T, fate row) {
		stop := make(chan struct{})
		s := startRaw(t, listen(t), func(n int, c net.Conn) bool {
			if n > 1 {
				_, err := c.Write([]byte(wholeAnswer))
				return err == nil
			}
			_, _ = c.Write([]byte(fate.first))
			if fate.after == "hang" {
				<-stop
			}
			return fate.after == "serve"
		})
		t.Cleanup(func() { close(stop) })
		f := startFront(t, s.url, func(c *Config) {
			c.Recovery = fate.recovery
			if fate.after == "hang" {
				c.Timeout = 300 * time.Millisecond
			}
		})
		if fate.status == 0 {
			require.Zero(t, post(t.Context(), f.URL+"/", "Bearer alice", "k"), "half an answer is none")
		} else {
			got := f.send(t, http.MethodPost, "/", "k")
			require.Equal(t, fate.status, got.Status, got.Body)
			require.Equal(t, fate.code, got.Header.Get("Idempotency-Error"))
			require.Empty(t, got.Header.Get("Idempotency-Outcome"))
			require.Empty(t, got.Trailer.Get("Idempotency-Outcome"))
		}
		require.NotContains(t, f.log.String(), "invalid WriteHeader")
		got := f.send(t, http.MethodPost, "/", "k")
		require.Equal(t, fate.then, got.Status, got.Body)
		require.Equal(t, fate.thenCode, got.Header.Get("Idempotency-Error"))
		require.Equal(t, fate.seen, s.count())
	})
}

// A service that cannot be reached has done nothing, also under Hold.
func TestServiceThatIsAwayHasDoneNothing(t *testing.T) {
	t.Parallel()
	l := listen(t)
	addr := l.Addr().String()
	l.Close()
	f := startFront(t, "http://"+addr, func(c *Config) { c.Recovery = "hold" })
	got := f.send(t, http.MethodPost, "/", "k")
	require.Equal(t, http.StatusServiceUnavailable, got.Status)
	require.Equal(t, "try-later", got.Header.Get("Idempotency-Error"))
	require.Equal(t, "1", got.Header.Get("Retry-After"))
	require.Contains(t, got.Body, "has not reached it")
	require.Equal(t, http.StatusBadGateway, f.send(t, http.MethodPost, "/", "").Status, "without a key")

	back, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	startRaw(t, back, func(_ int, c net.Conn) bool {
		_, err := c.Write([]byte(wholeAnswer))
		return err == nil
	})
	again := f.send(t, http.MethodPost, "/", "k")
	require.Equal(t, http.StatusCreated, again.Status)
	require.Empty(t, again.Header.Get("Idempotent-Replayed"))
}
