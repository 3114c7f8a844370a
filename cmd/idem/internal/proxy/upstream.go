package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"example.com/idempotency"
)

// This file brings a request to the service, once, and tells how far it came.

// idle is how long a connection without a request is kept. It is shorter than that of common servers, which
// would close it while a request is on its way: Node.js does after 5 seconds, gunicorn after 2.
const idle = time.Second

// newTransport returns the transport to a service. A fresh one keeps no connection.
func newTransport(h2c, fresh bool) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &gate{Conn: c}, nil
		},
		MaxIdleConnsPerHost: 256, IdleConnTimeout: idle, DisableKeepAlives: fresh, DisableCompression: true,
		TLSHandshakeTimeout: 5 * time.Second, MaxResponseHeaderBytes: 256 << 10, Protocols: new(http.Protocols),
	}
	t.Protocols.SetHTTP1(!h2c)
	t.Protocols.SetUnencryptedHTTP2(h2c)
	return t
}

// A sending is one request on its way. net/http repeats a request on another connection, if the first one
// breaks and the request has an Idempotency-Key and no body. To a service that does not know keys, that is a
// second effect. So a request that may have left on one connection finds all others closed.
type sending struct {
	shared bool // the connection has other requests, too: nothing is known of this one, nor may it be closed
	safe   bool // net/http may repeat it on other connections

	mu   sync.Mutex
	conn *gate
	from int // the writes of the connection before this request
	sent bool
}

// gateOf returns the gate of a connection, and whether nothing but requests and answers is sent there: TLS has more to say.
func gateOf(c net.Conn) (g *gate, plain bool) {
	secure, ok := c.(*tls.Conn)
	if ok {
		c = secure.NetConn()
	}
	g, _ = c.(*gate)
	return g, !ok
}

func (s *sending) gotConn(info httptrace.GotConnInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, plain := gateOf(info.Conn)
	if g == nil || s.shared {
		s.sent = true
		return
	}
	g.next(plain)
	if !s.safe && s.conn != nil && !s.conn.closeIf(s.from) {
		s.sent = true
	}
	s.conn, s.from = g, g.count()
	if s.sent {
		g.closeIf(s.from)
	}
}

// left reports whether a byte of the request may have left, once it has failed. If not, none will.
func (s *sending) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent || s.conn != nil && !s.conn.closeIf(s.from)
}

// written reports whether something was written to the connection since the request had it, as far as anybody knows.
func (s *sending) written() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn == nil || s.conn.count() > s.from
}

// mostKept is how many connections that were kept are tried of which none can be used again.
const mostKept = 8

// lost reports whether the request was given a connection that could not be used, and has not left. Nothing will.
func (s *sending) lost() bool {
	s.mu.Lock()
	connected := s.conn != nil
	s.mu.Unlock()
	return connected && !s.left()
}

// A failure is why there is no answer.
type failure struct {
	fate fate
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

var errSilent = errors.New("the service has been silent for too long")

// A hop is the transport of the requests of a rule.
type hop struct {
	transport *http.Transport
	h2c       bool
	timeout   time.Duration // of a run, for each silence
}

// RoundTrip sends a request. One without effects and without a run may be repeated, as net/http likes.
func (h *hop) RoundTrip(r *http.Request) (*http.Response, error) {
	op, run := idempotency.FromContext(r.Context())
	if !run && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions) {
		s := &sending{shared: h.h2c, safe: true}
		out := r.WithContext(telling(r.Context(), s.gotConn))
		out.Close = out.Close || leavesRest(out)
		resp, err := h.exchange(out, s)
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return nil, &failure{unsent, err}
		} else if err != nil {
			return nil, &failure{broken, err}
		}
		return resp, nil
	}
	ctx := r.Context()
	w := &watch{op: op, after: h.timeout}
	if run {
		ctx, w.cancel = context.WithCancelCause(ctx)
		w.timer = time.AfterFunc(w.after, func() { w.cancel(errSilent) })
	}
	s := &sending{shared: h.h2c}
	out := r.WithContext(telling(ctx, s.gotConn))
	out.GetBody = nil
	again := func() io.ReadCloser { return nil } // the body once more
	repeats := out.Body == nil || out.Body == http.NoBody
	if h.h2c && out.Body == nil {
		out.Body = io.NopCloser(new(empty)) // with a body, HTTP/2 is not repeated; connections are shared there
	}
	if run && out.ContentLength > 0 && out.ContentLength <= oneWrite {
		body := make([]byte, out.ContentLength)
		if _, err := io.ReadFull(out.Body, body); err != nil {
			w.end()
			return nil, &failure{unsent, err}
		}
		again, repeats = func() io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }, true
		out.Body = again()
	}
	resp, err := h.exchange(out, s)
	for n := 0; err != nil && repeats && !h.h2c && n < mostKept && s.lost(); n++ {
		s = new(sending)
		out = r.WithContext(telling(ctx, s.gotConn))
		out.GetBody, out.Body = nil, again()
		resp, err = h.exchange(out, s)
	}
	switch {
	case err != nil:
		f := &failure{broken, err}
		if !s.left() {
			f.fate = unsent
		} else if errors.Is(context.Cause(ctx), errSilent) {
			f.fate = silent
		}
		w.end()
		return nil, f
	case run && resp.StatusCode != http.StatusSwitchingProtocols:
		w.ReadCloser, w.resp, resp.Body = resp.Body, resp, w
	}
	return resp, nil
}

// leavesRest reports whether the answer may be a header without the body that it tells of. Its connection is not used again,
// so it is not kept for a request that could not be sent by another one.
func leavesRest(r *http.Request) bool {
	return r.Method == http.MethodHead || len(r.Header["If-None-Match"])+len(r.Header["If-Modified-Since"]) > 0
}

// telling returns a context in which a request tells its connections.
func telling(ctx context.Context, gotConn func(httptrace.GotConnInfo)) context.Context {
	if around := httptrace.ContextClientTrace(ctx); around != nil { // of the proxy of net/http, made for this request
		around.GotConn = gotConn
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: gotConn})
}

var (
	errStatus  = errors.New("the status of the answer is none")
	errForeign = errors.New("what is left of another answer")
)

// exchange sends a request. An answer with a status that a server of net/http cannot send is none, and so is one to a request
// that was not sent.
func (h *hop) exchange(r *http.Request, s *sending) (*http.Response, error) {
	resp, err := h.transport.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case !s.written():
		err = errForeign
	case resp.StatusCode < 100 || resp.StatusCode > 999:
		err = errStatus
	default:
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, err
}

// oneWrite is how large a body may be that net/http is shown to be in memory: it sends it in one write with the
// header then.
const oneWrite = 64 << 10

// An empty is a body without a byte, which net/http does not take for none.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }

// A watch is the body of an answer in a run. It ends the run's request if the service falls silent, and finds the
// outcome in a trailer.
type watch struct {
	io.ReadCloser
	resp   *http.Response
	op     *idempotency.Operation
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (w *watch) Read(p []byte) (int, error) {
	w.timer.Reset(w.after) // it does not run while the client takes its time
	n, err := w.ReadCloser.Read(p)
	w.timer.Stop()
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		if outcome := said(w.resp.Trailer); outcome != 0 {
			w.op.SetOutcome(outcome)
			delete(w.resp.Trailer, outcomeField)
		}
	default: // the proxy of net/http panics, so the run has no answer
	}
	return n, err
}

func (w *watch) Close() error {
	defer w.end()
	return w.ReadCloser.Close()
}

func (w *watch) end() {
	if w.timer != nil {
		w.timer.Stop()
		w.cancel(nil)
	}
}
