package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// What the service is told of a request is what the client has said, and what the proxy knows; a client cannot
// say what only the proxy knows.
func TestServiceIsTold(t *testing.T) {
	t.Parallel()
	const span = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	f := startTold(t, "", func(c *Config) { c.DerivedKey = true })
	trusting := startTold(t, "/api", func(c *Config) { c.TrustForwarded = true })
	forged := []string{
		"Idempotency-Attempt: 9", "Idempotency-Derived-Key: forged", "Idempotency-Outcome: final", "X-Forwarded-For: 1.2.3.4",
		"X-Forwarded-Host: evil", "Forwarded: for=1.2.3.4", "Traceparent: " + span, "Connection: Idempotency-Key, X-Private", "X-Private: p",
	}
	run := told(t, f.send(t, http.MethodPost, "/a//b?x=1;y=%zz", "k", forged...))
	require.Equal(t, []string{"k"}, run["Idempotency-Key"])
	require.Equal(t, []string{"1"}, run["Idempotency-Attempt"])
	require.Len(t, run["Idempotency-Derived-Key"], 1)
	require.Regexp(t, "^[0-9a-f]{32}$", run["Idempotency-Derived-Key"][0])
	require.Equal(t, []string{span}, run["Traceparent"])
	require.Equal(t, []string{"127.0.0.1"}, run["X-Forwarded-For"])
	require.Equal(t, []string{strings.TrimPrefix(f.URL, "http://")}, run["Host"])
	require.Equal(t, []string{"/a//b?x=1;y=%zz"}, run["Target"])
	for _, name := range []string{"Idempotency-Outcome", "Forwarded", "X-Private"} {
		require.NotContains(t, run, name)
	}
	require.NotEqual(t, []string{"evil"}, run["X-Forwarded-Host"])

	offers := told(t, f.send(t, http.MethodPost, "/", "up", "Connection: Upgrade", "Upgrade: echo"))
	require.NotContains(t, offers, "Upgrade", "a run has one answer")
	require.NotContains(t, offers, "Connection")

	passed := told(t, f.send(t, http.MethodPost, "/", "", forged...))
	for _, name := range []string{"Idempotency-Attempt", "Idempotency-Derived-Key", "Idempotency-Outcome"} {
		require.NotContains(t, passed, name)
	}
	behind := told(t, trusting.send(t, http.MethodPost, "/x", "k2", "X-Forwarded-For: 1.2.3.4"))
	require.Equal(t, []string{"1.2.3.4, 127.0.0.1"}, behind["X-Forwarded-For"])
	require.Equal(t, []string{"/api/x"}, behind["Target"])
	require.NotContains(t, behind, "Idempotency-Derived-Key")
	require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-00$", behind["Traceparent"][0])

	other := told(t, f.send(t, http.MethodPost, "/a//b?x=1;y=%zz", "k", append(forged, "-Authorization", "Authorization: Bearer bob")...))
	require.NotEqual(t, run["Idempotency-Derived-Key"], other["Idempotency-Derived-Key"], "each caller has keys of its own")
}

// An answer without a declared length is recorded before its client sees it; a stream is sent as it comes.
func TestOnlyStreamsAreFlushed(t *testing.T) {
	t.Parallel()
	for kind, early := range map[string]bool{"application/json": false, "text/event-stream; charset=utf-8": true, "application/x-ndjson": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			finish := make(chan struct{})
			end := sync.OnceFunc(func() { close(finish) })
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(w, "one\n")
				_ = http.NewResponseController(w).Flush()
				<-finish
				_, _ = io.WriteString(w, "two\n")
			}))
			t.Cleanup(s.Close)
			t.Cleanup(end)
			f := startFront(t, s.URL, nil)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.URL, nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer alice")
			r.Header.Set("Idempotency-Key", "k")
			first := make(chan string, 1)
			whole := make(chan string, 1)
			go func() {
				resp, err := f.Client().Do(r)
				if err != nil {
					return
				}
				defer resp.Body.Close()
				in := bufio.NewReader(resp.Body)
				line, _ := in.ReadString('\n')
				first <- line
				rest, _ := io.ReadAll(in)
				whole <- line + string(rest)
			}()
			if early {
				require.Equal(t, "one\n", <-first)
			} else {
				select {
				case line := <-first:
					t.Fatalf("%q was sent before the answer was whole", line)
				case <-time.After(50 * time.Millisecond): // real time: nothing else tells that nothing comes
				}
			}
			end()
			require.Equal(t, "one\ntwo\n", <-whole)
			again := f.send(t, http.MethodPost, "", "k")
			require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
			require.Equal(t, "one\ntwo\n", again.Body)
		})
	}
}

// Informational answers and trailers pass, without the outcome.
func TestHintsAndTrailersPass(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.Header().Set("Idempotency-Outcome", "final")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
	}))
	defer s.Close()
	for _, header := range []http.Header{{}, {"Authorization": {"Bearer alice"}, "Idempotency-Key": {"k"}}} {
		f := startFront(t, s.URL, nil)
		var hints []textproto.MIMEHeader
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			hints = append(hints, h)
			return nil
		}})
		for range 2 {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, nil)
			require.NoError(t, err)
			r.Header = header
			got := f.do(t, r)
			require.Equal(t, "body", got.Body)
			require.Equal(t, "42", got.Trailer.Get("X-Sum"))
			require.Empty(t, got.Header.Get("Idempotency-Outcome"))
		}
		require.NotEmpty(t, hints)
		require.Equal(t, "</style.css>", hints[0].Get("Link"))
		require.Empty(t, hints[0].Get("Idempotency-Outcome"))
	}
}

// A connection that is taken over passes, and is not protected.
func TestUpgradePasses(t *testing.T) {
	t.Parallel()
	s := startRaw(t, listen(t), func(_ int, c net.Conn) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nIdempotency-Outcome: final\r\n\r\n")
		_, _ = io.Copy(c, c)
		return false
	})
	f := startFront(t, s.url, nil)
	c, in := f.dial(t, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nIdempotency-Key: k\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.Empty(t, resp.Header.Get("Idempotency-Outcome"))
	_, err = io.WriteString(c, "hello\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "hello\n", line)
}

// An informational answer of HTTP/2 that claims to switch protocols is not handed on: net/http would take it for the last one.
func TestNoUpgradeOverHTTP2(t *testing.T) {
	t.Parallel()
	for _, wrap := range []func(http.ResponseWriter) http.ResponseWriter{
		func(w http.ResponseWriter) http.ResponseWriter { return whole{writer{w}} },
		func(w http.ResponseWriter) http.ResponseWriter { return passing{writer{w}} },
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			wrap(w).WriteHeader(http.StatusSwitchingProtocols)
			wrap(w).WriteHeader(http.StatusCreated)
		}))
		got, err := guardtest.Read(s.Client().Get(s.URL)) //nolint:bodyclose // Read closes it
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, got.Status)
		s.Close()
	}
}

// HTTP/2 without TLS is spoken to the service if it is asked for, and with clients that do.
func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s run %d", r.Proto, runs.Add(1))
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	f := startFront(t, strings.Replace(s.URL, "http:", "h2c:", 1), nil)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	f.Client().Transport = transport
	for range 2 {
		got := f.send(t, http.MethodPost, "/", "k")
		require.Equal(t, "HTTP/2.0 run 1", got.Body)
	}
}

// A client that drips its body is refused, and one that is fast may wait for its answer as long as it likes.
func TestBodyMustArriveInTime(t *testing.T) {
	t.Parallel()
	wait := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { <-wait }))
	defer s.Close()
	c := Default()
	c.To, c.Wait = s.URL, guardtest.Patience
	f := startFrontOn(t, &c, newTransport(false, false), 100*time.Millisecond)
	send := func(body string) *bufio.Reader {
		_, in := f.dial(t, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nIdempotency-Key: "+fmt.Sprint(len(body))+"\r\nContent-Length: 4\r\n\r\n"+body)
		return in
	}
	fast, duplicate := send("four"), send("four")
	for _, slow := range []string{"d", "dri"} { // the second comes after the time of the first two requests is over
		guardtest.RequireProblem(t, received(t, send(slow)), http.StatusRequestTimeout, problem.BodyUnreadable)
	}
	close(wait)
	for _, in := range []*bufio.Reader{fast, duplicate} {
		require.Equal(t, http.StatusOK, received(t, in).Status)
	}
}

// A storm of retries while the service is slow has one effect, and one answer.
func TestRetryStorm(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	finish := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := runs.Add(1)
		<-finish
		fmt.Fprintf(w, "run %d", n)
	}))
	defer s.Close()
	f := startFront(t, s.URL, func(c *Config) { c.Wait = guardtest.Patience })
	const clients = 50
	bodies := make(chan string, clients)
	for range clients {
		go func() {
			got, _ := charge(t.Context(), f.Listener.Addr().String(), "k")
			bodies <- got.Body
		}()
	}
	require.Eventually(t, func() bool { return runs.Load() == 1 }, guardtest.Patience, time.Millisecond)
	close(finish)
	for range clients {
		require.Equal(t, "run 1", <-bodies)
	}
}

// The line of a request tells what the guard has made of it, and no key, credential or query.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	f := startTold(t, "", nil)
	f.send(t, http.MethodPost, "/pay?card=visa", "secret-key")
	f.send(t, http.MethodPost, "/pay?card=visa", "secret-key")
	f.send(t, http.MethodPost, "/pay", "secret-key")
	f.send(t, http.MethodPost, "/pay", "")
	f.send(t, http.MethodGet, "/pay", "secret-key")
	got := f.send(t, http.MethodPost, "/pay", "secret-key", "-Authorization")
	require.Equal(t, http.StatusUnauthorized, got.Status)
	require.Equal(t, "Bearer", got.Header.Get("Www-Authenticate"))
	var results []string
	for line := range strings.Lines(f.log.String()) {
		var l struct {
			Msg, Result, Code, Outcome string
			Attempt, Status            int
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		if l.Msg == "request" {
			results = append(results, strings.TrimSpace(fmt.Sprintln(l.Result, l.Status, l.Attempt, l.Outcome, l.Code)))
		}
	}
	require.Equal(t, []string{"run 200 1 final", "replay 200 1", "refused 409 1  key-reused", "bypassed 200 0", "passed 200 0", "refused 401 0  unauthenticated"}, results)
	for _, secret := range []string{"secret-key", "visa", "alice"} {
		require.NotContains(t, f.log.String(), secret)
	}
}

// A full store takes no claim.
type fullStore struct{ *idempotency.MemoryStore }

func (fullStore) Claim(context.Context, string, store.Claim) (store.Record, error) {
	return store.Record{}, store.ErrFull
}

// The line of a request and those of its guard have one trace, that of the client.
func TestLinesOfARequestJoin(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	c := Default()
	c.To = "http://127.0.0.1:1"
	_, proxy, err := c.build(fullStore{idempotency.NewMemoryStore()}, logs{logger, logger.Handler()})
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pay", nil)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for name, value := range map[string]string{"Authorization": "Bearer alice", "Idempotency-Key": "k", "Traceparent": "00-" + trace + "-b7ad6b7169203331-01"} {
		r.Header.Set(name, value)
	}
	proxy.ServeHTTP(httptest.NewRecorder(), r)
	require.Contains(t, log.String(), "idempotency: store call failed")
	for line := range strings.Lines(log.String()) {
		require.Equal(t, 1, strings.Count(line, `"trace_id":"`+trace+`"`), line)
	}
}
