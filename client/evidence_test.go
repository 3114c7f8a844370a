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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/store"
)

// A request that an http.Transport cannot send is not tried again, and one that found no
// connection has done nothing.
func TestEvidenceOfAnHTTPTransport(t *testing.T) {
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
	fails(t, newTransport(t, base, quick), post(t.Context(), place, "{}"), client.ErrOutcomeUnknown)

	// The certificate of the server is not known here.
	s := serveTLS(t)
	_, err := send(newTransport(t, newBase(t), quick), post(t.Context(), s, "{}"))
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Len(t, failure(t, err).Attempts, 1)
}

// An http.Transport sends a request with a key again by itself if the connection was used
// before. What it lost in between may have been executed, although it is not an attempt
// of ours.
func TestTryThatTheBaseHidesIsUnknown(t *testing.T) {
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
				answered(t, transport, post(t.Context(), s.URL, "{}"))
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
	answered(t, transport, post(t.Context(), s.URL, "{}"))
	_, err := send(transport, post(t.Context(), s.URL, "{}"))
	require.EqualValues(t, 2, dials.Load(), "it is not tried again and again")
	require.EqualValues(t, 2, requests.Load())
	var certificate *tls.CertificateVerificationError
	require.ErrorAs(t, err, &certificate)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)

	other := answering(answer{err: certificate})
	_ = failsWith(t, newTransport(t, other, quick), post(t.Context(), place, "{}"), client.ErrOutcomeUnknown, "what such a base did before is not known")
	require.Len(t, other.requests(), 1)
}

// The same goes for an address that turns out to be malformed then.
func TestMalformedAddressAfterTheRequestWasSent(t *testing.T) {
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
	answered(t, transport, post(t.Context(), s.URL, "{}"))
	_, err := send(transport, post(t.Context(), s.URL, "{}"))
	require.EqualValues(t, 2, requests.Load())
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	_, err = send(transport, post(t.Context(), s.URL, "{}"))
	require.EqualValues(t, 2, requests.Load())
	require.NotErrorIs(t, err, client.ErrOutcomeUnknown, "it was not sent")
}

// A protocol that is registered with an http.Transport need not tell of its connections.
func TestRegisteredProtocolThatLeavesNoTrace(t *testing.T) {
	base := newBase(t)
	other := answering(answer{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}})
	base.RegisterProtocol("http", other)
	fails(t, newTransport(t, base, quick), post(t.Context(), place, "{}"), client.ErrOutcomeUnknown)
	other.requireOneKey(t, 4)
}

// The answer that switches protocols is the beginning of a conversation. The context of the attempt ends with it.
func TestSwitchingProtocols(t *testing.T) {
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
	var attempt context.Context
	plain := newBase(t)
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		attempt = r.Context()
		return plain.RoundTrip(r)
	})
	resp, err := newTransport(t, base, client.WithAttempts(1), client.WithTimeout(5e9)).RoundTrip(r)
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
	require.NoError(t, attempt.Err())
	require.NoError(t, resp.Body.Close())
	require.ErrorIs(t, attempt.Err(), context.Canceled)
}

// A request that is sent once does not count twice: neither over HTTP/2, nor when the base asks for
// a token first.
func TestRefusalOfWhatWasSentOnceIsTheAnswer(t *testing.T) {
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

// inProcess is the transport to a handler without a network.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// unrenewed is a store that cannot be reached for renewals.
type unrenewed struct{ *idempotency.MemoryStore }

func (unrenewed) Renew(context.Context, string, store.Owner) error {
	return errors.New("the store is away")
}

// A server may have had the effect and answers with a plain refusal. Its guard knows better, and
// so does the client.
func TestRefusalAfterAnEffectIsNotTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		effect   func(*http.Request)
		statuses []int
	}{
		"a lost lease": {func(r *http.Request) { <-r.Context().Done() }, []int{402, 409, 422, 429}},
		"a step": {func(r *http.Request) {
			_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
		}, []int{401, 425, 429}},
	} {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			for _, attempts := range []int{1, 3} {
				t.Run(name, func(t *testing.T) {
					for _, status := range c.statuses {
						synctest.Test(t, func(t *testing.T) {
							g := newGuard(t, unrenewed{idempotency.NewMemoryStore()}, idempotency.WithRecovery(recovery), idempotency.WithLease(3*time.Second))
							h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
								c.effect(r)
								w.WriteHeader(status)
							}))
							transport := newTransport(t, inProcess{h}, client.WithAttempts(attempts))
							for range 2 { // a client that does not know of the first finds the step
								err := failsWith(t, transport, post(client.WithKey(t.Context(), "k"), place, "{}"), client.ErrOutcomeUnknown, "%v, status %d, %d attempts", recovery, status, attempts)
								require.Equal(t, recovery == idempotency.Hold, errors.Is(err, client.ErrHeld))
							}
						})
					}
				})
			}
		}
	}
}

// A timeout in front of a guard answers 408 while the run goes on behind it. The client waits for that
// run, as for one that it is told of, and there is never another one.
func TestTimeoutInFrontOfAGuardIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		echo string // the timeout answers with the key, as where it writes into the response of the handler
		opts []idempotency.Option
	}{
		"bare":                   {"", nil},
		"with the key":           {"k", nil},
		"the guard waits itself": {"", []idempotency.Option{idempotency.WithWait(time.Minute)}},
	} {
		bubble(t, name, func(t *testing.T) {
			var running, runs atomic.Int64
			g := newGuard(t, idempotency.NewMemoryStore(), c.opts...)
			h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				assert.EqualValues(t, 1, running.Add(1), "one run at a time")
				runs.Add(1)
				time.Sleep(20 * time.Second)
				running.Add(-1)
				w.WriteHeader(http.StatusCreated)
			}))
			hurried := roundTripper(func(r *http.Request) (*http.Response, error) {
				answered := make(chan *http.Response, 1)
				go func() {
					resp, _ := inProcess{h}.RoundTrip( //nolint:bodyclose // the client closes it
						r.WithContext(context.WithoutCancel(r.Context())))
					answered <- resp
				}()
				select {
				case resp := <-answered:
					return resp, nil
				case <-time.After(time.Second):
					late := answer{status: http.StatusRequestTimeout, header: map[string]string{"Idempotency-Key": c.echo}}
					return late.response(r), nil
				}
			})
			got := answered(t, newTransport(t, hurried), post(client.WithKey(t.Context(), "k"), place, "{}"))
			require.Equal(t, http.StatusCreated, got.status)
			require.True(t, client.Replayed(got.resp))
			require.EqualValues(t, 1, runs.Load())
			synctest.Wait()
		})
	}
}

// Behind a guard, each 408 of the handler may be the end of a run whose work goes on. It is never said that
// nothing was done.
func TestTimeoutBehindAGuardIsAskedWithinTheLimit(t *testing.T) {
	for _, attempts := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			base := answering(answer{status: http.StatusRequestTimeout, header: map[string]string{keyField: "k"}})
			err := failsWith(t, newTransport(t, base, client.WithAttempts(attempts)), post(client.WithKey(t.Context(), "k"), place, "{}"), client.ErrOutcomeUnknown)
			require.Equal(t, client.ReasonAttempts, failure(t, err).Reason)
			require.Len(t, base.requests(), attempts)
		})
	}
}
