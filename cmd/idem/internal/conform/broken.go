package conform

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// This file is a connection that breaks. It stands where a network would be that fails at the worst
// moment.

// A breakage is the moment at which a connection breaks.
type breakage int

const (
	// halfway: half of the body has been sent.
	halfway breakage = iota
	// beforeAnswer: the whole request has been sent, and the client goes.
	beforeAnswer
	// inAnswer: the answer has begun to arrive, is lost, and the connection is reset.
	inAnswer
)

// sendBroken sends a request that take has allowed over a connection that breaks. An answer that was
// lost is returned as far as it was seen.
func (w *wire) sendBroken(ctx context.Context, s shot, keyHeader string, at breakage) answer {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	r, err := w.request(ctx, s, keyHeader)
	if err != nil {
		return answer{err: err}
	}
	conn, raw, err := dial(ctx, r)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	var whole bytes.Buffer
	if err := r.Write(&whole); err != nil {
		return answer{err: err}
	}
	text := whole.Bytes()
	if at == halfway {
		text = text[:len(text)-(len(s.body)+1)/2]
	}
	if _, err := conn.Write(text); err != nil {
		return answer{err: err}
	}
	if at != inAnswer {
		return answer{err: errGone, wrote: time.Now()}
	}
	first := make([]byte, 64<<10)
	n, err := conn.Read(first)
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	if err != nil && n == 0 {
		return answer{err: fmt.Errorf("instead of an answer: %w", err)}
	}
	resp, err := http.ReadResponse(bufio.NewReader(io.LimitReader(bytes.NewReader(first), int64(n))), r)
	if err != nil {
		return answer{err: errGone}
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body) // as far as it has come
	return answer{status: resp.StatusCode, header: resp.Header, body: string(body), lost: true}
}

var errGone = errors.New("the connection was cut")

// dial connects to the server of a request. raw is the connection below TLS.
func dial(ctx context.Context, r *http.Request) (conn, raw net.Conn, err error) {
	port := r.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	}
	raw, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(r.URL.Hostname(), port))
	if err != nil || r.URL.Scheme == "http" {
		return raw, raw, err
	}
	secure := tls.Client(raw, &tls.Config{ServerName: r.URL.Hostname(), MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	return secure, raw, nil
}

// listens returns an error if nobody accepts connections at a URL.
func (*wire) listens(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	conn, _, err := dial(ctx, r)
	if err == nil {
		_ = conn.Close()
	}
	return err
}
