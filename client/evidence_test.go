package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// A request that an http.Transport cannot send is not tried again, and one that found no
// connection has done nothing.
func TestEvidenceOfAnHTTPTransport(t *testing.T) {
	t.Parallel()
	invalid := post(t.Context(), "http://127.0.0.1:1/", "{}")
	invalid.Header["X"] = []string{"a\nb"}
	for name, r := range map[string]*http.Request{
		"scheme": post(t.Context(), "gopher://127.0.0.1/", "{}"),
		"host":   post(t.Context(), "http:///path", "{}"),
		"header": invalid,
	} {
		_, err := send(newTransport(t, newBase(t), quick), r)
		e := failure(t, err)
		require.NotErrorIs(t, err, client.ErrOutcomeUnknown, name)
		require.Equal(t, client.ReasonSettled, e.Reason, name)
		require.Len(t, e.Attempts, 1, name)
	}

	// A base of another kind may have sent it before it failed to connect.
	base := answering(answer{err: &net.OpError{Op: "dial", Err: errors.New("refused")}})
	_, err := send(newTransport(t, base, quick), post(t.Context(), place, "{}"))
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)

	// The certificate of the server is not known here.
	s := serveTLS(t)
	_, err = send(newTransport(t, newBase(t), quick), post(t.Context(), s, "{}"))
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Len(t, failure(t, err).Attempts, 1)
}

// An http.Transport sends a request with a key again by itself if the connection was used
// before. What it lost in between may have been executed, although it is not an attempt
// of ours.
func TestTryThatTheBaseHidesIsUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		header map[string]string
		want   error
	}{
		"401 of a gateway": {http.StatusUnauthorized, nil, client.ErrOutcomeUnknown},
		"429":              {http.StatusTooManyRequests, nil, client.ErrOutcomeUnknown},
		"201":              {http.StatusCreated, nil, nil},
	} {
		for kind, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
			"http.Transport": func(base http.RoundTripper) http.RoundTripper { return base },
			"wrapped":        func(base http.RoundTripper) http.RoundTripper { return struct{ http.RoundTripper }{base} },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				var requests atomic.Int64
				s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					switch requests.Add(1) {
					case 1:
					case 2:
						panic(http.ErrAbortHandler) // executed, and the answer is lost
					default:
						w.WriteHeader(c.status)
					}
				}))
				transport := newTransport(t, wrap(newBase(t)), quick, client.WithAttempts(1))
				_, err := send(transport, post(t.Context(), s.URL, "{}"))
				require.NoError(t, err)
				got, err := send(transport, post(t.Context(), s.URL, "{}"))
				require.EqualValues(t, 3, requests.Load(), "the base has not sent it again")
				if c.want == nil {
					require.NoError(t, err)
					require.Equal(t, c.status, got.status)
					return
				}
				require.ErrorIs(t, err, c.want)
				require.Len(t, failure(t, err).Attempts, 1)
				require.Equal(t, c.status, failure(t, err).Attempts[0].Status)
			})
		}
	}
}

// A certificate that is found to be wrong when the base connects again says nothing about
// what it sent before.
func TestWrongCertificateAfterTheRequestWasSent(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	base := newBase(t)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	var dials atomic.Int64
	base.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		config := &tls.Config{RootCAs: roots, ServerName: "example.com"}
		if dials.Add(1) > 1 {
			config.RootCAs = x509.NewCertPool()
		}
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
	}
	transport := newTransport(t, base, quick)
	_, err := send(transport, post(t.Context(), s.URL, "{}"))
	require.NoError(t, err)
	_, err = send(transport, post(t.Context(), s.URL, "{}"))
	require.EqualValues(t, 2, dials.Load(), "it is not tried again and again")
	require.EqualValues(t, 2, requests.Load())
	var certificate *tls.CertificateVerificationError
	require.ErrorAs(t, err, &certificate)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)

	other := answering(answer{err: certificate})
	_, err = send(newTransport(t, other, quick), post(t.Context(), place, "{}"))
	require.ErrorIs(t, err, client.ErrOutcomeUnknown, "what such a base did before is not known")
	require.Len(t, other.requests(), 1)
}

// The same goes for an address that turns out to be malformed then.
func TestMalformedAddressAfterTheRequestWasSent(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	s := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if requests.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	base := newBase(t)
	var dials atomic.Int64
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) > 1 { // the registry of addresses says something else by now
			return nil, &url.Error{Op: "parse", URL: "http://[::1", Err: errors.New("no address")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	transport := newTransport(t, base, quick)
	_, err := send(transport, post(t.Context(), s.URL, "{}"))
	require.NoError(t, err)
	_, err = send(transport, post(t.Context(), s.URL, "{}"))
	require.EqualValues(t, 2, requests.Load())
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	_, err = send(transport, post(t.Context(), s.URL, "{}"))
	require.EqualValues(t, 2, requests.Load())
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown, "it was not sent")
}

// A protocol that is registered with an http.Transport need not tell of its connections.
func TestRegisteredProtocolThatLeavesNoTrace(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	other := answering(answer{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}})
	base.RegisterProtocol("http", other)
	_, err := send(newTransport(t, base, quick), post(t.Context(), place, "{}"))
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	other.requireOneKey(t, 4)
}

// The answer that switches protocols is the beginning of a conversation.
func TestSwitchingProtocols(t *testing.T) {
	t.Parallel()
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.CopyN(conn, rw, 4)
	}))
	r := request(t.Context(), http.MethodGet, s.URL, http.NoBody)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := newTransport(t, newBase(t), client.WithAttempts(1), client.WithTimeout(5e9)).RoundTrip(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	_, err = io.WriteString(conn, "ping")
	require.NoError(t, err)
	echo := make([]byte, 4)
	_, err = io.ReadFull(conn, echo)
	require.NoError(t, err)
	require.Equal(t, "ping", string(echo))
}

// A request that is sent once does not count twice: neither over HTTP/2, nor when the base asks for
// a token first.
func TestRefusalOfWhatWasSentOnceIsTheAnswer(t *testing.T) {
	t.Parallel()
	refuses := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	token := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure := httptest.NewUnstartedServer(refuses)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := newBase(t)
	for name, c := range map[string]struct {
		url  string
		base http.RoundTripper
	}{
		"HTTP/2": {secure.URL, secure.Client().Transport},
		"token": {serve(t, refuses).URL, roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := plain.RoundTrip(request(r.Context(), http.MethodPost, token.URL, http.NoBody))
			if err != nil {
				return nil, err
			}
			_ = resp.Body.Close()
			return plain.RoundTrip(r)
		})},
	} {
		transport := newTransport(t, c.base, quick)
		for range 3 { // also over a connection that was used before
			got, err := send(transport, post(t.Context(), c.url, "{}"))
			require.NoError(t, err, name)
			require.Equal(t, http.StatusForbidden, got.status)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A base that tries another way when the first has failed may have hidden that one.
func TestBaseThatFallsBackHidesTheFirstTry(t *testing.T) {
	t.Parallel()
	plain := newBase(t)
	first := answering(answer{err: errReset})
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		again := r.Clone(r.Context())
		if _, err := first.RoundTrip(r); err == nil {
			return nil, errors.New("an answer")
		}
		again.URL.Host = "127.0.0.1:1" // nobody listens there
		again.Body = http.NoBody
		return plain.RoundTrip(again)
	})
	_, err := send(newTransport(t, base, quick, client.WithAttempts(1)), post(t.Context(), place, "{}"))
	require.Len(t, first.requests(), 1)
	require.Equal(t, client.Retry, client.Classify(nil, failure(t, err).Err), "%v", err)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
}
