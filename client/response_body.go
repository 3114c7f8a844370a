package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"example.com/idempotency/client/internal/truncate"
)

// This file receives the bodies of answers.

// hold reads the body of an answer into memory if its length is declared and within the
// limit. An answer that is cut short is then noticed while it can still be asked for again. A
// body without a declared length may be a stream that the caller wants as it comes.
func hold(resp *http.Response, limit int64) (held bool, err error) {
	if resp.ContentLength < 0 || resp.ContentLength > limit || resp.Body == nil ||
		resp.StatusCode == http.StatusSwitchingProtocols {
		return false, nil
	}
	body := resp.Body
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if int64(len(data)) > limit { // a RoundTripper that unpacks it has left the length as it was
		resp.Body = prefixed(data, body)
		return false, nil
	}
	_ = body.Close() // whatever it says, all that was declared has arrived
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return true, err
}

// An *http.Transport asks for gzip by itself, unpacks the answer, and no longer tells the
// length that was declared. An answer that is cut short would be found out by the caller. So
// the client asks for gzip itself where an *http.Transport would, and unpacks.

// wantsGzip reports whether an *http.Transport would ask for gzip with a request.
func wantsGzip(r *http.Request, base http.RoundTripper) bool {
	t, ok := base.(*http.Transport)
	return ok && !t.DisableCompression && r.Method != http.MethodHead &&
		r.Header.Get("Accept-Encoding") == "" && r.Header.Get("Range") == ""
}

// unpack makes of an answer in gzip what an *http.Transport makes of it.
func unpack(resp *http.Response) {
	if !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") || resp.ContentLength == 0 {
		return
	}
	resp.Body = &unpackedBody{packed: resp.Body}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Uncompressed = true
}

// An unpackedBody reads the header of gzip with the first byte that is asked for.
type unpackedBody struct {
	packed io.ReadCloser
	reader *gzip.Reader
	err    error
}

func (b *unpackedBody) Read(p []byte) (n int, err error) {
	if b.reader == nil && b.err == nil {
		b.reader, b.err = gzip.NewReader(b.packed)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.reader.Read(p)
}

func (b *unpackedBody) Close() error { return b.packed.Close() }

// discard reads the rest of an answer that nobody wants. The connection can then be used
// again. A rest that is long costs more than a new connection, and is not read.
func discard(resp *http.Response) {
	if resp == nil || resp.Body == nil {
		return
	}
	const worthReading = 256 << 10
	_, _ = io.CopyN(io.Discard, resp.Body, worthReading)
	_ = resp.Body.Close()
}

// A streamedBody is the body of an answer that the caller reads from the connection. It
// ends the context of the attempt when it has been read or is closed, and names the key
// when it breaks off.
type streamedBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	broken func(error) error
	closed atomic.Bool // or read to its end
}

func (b *streamedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	b.cancel(nil)
	err = truncate.Error(err)
	switch {
	case errors.Is(err, io.EOF):
		b.closed.Store(true)
	case !b.closed.Load():
		err = b.broken(err)
	}
	return n, err
}

func (b *streamedBody) Close() error {
	b.closed.Store(true)
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// A conversation is the body of an answer that switches protocols: the connection, which
// belongs to the caller. Closing it ends the context of the attempt.
type conversation struct {
	io.ReadWriteCloser
	cancel context.CancelCauseFunc
}

func (c *conversation) Close() error {
	defer c.cancel(nil)
	return c.ReadWriteCloser.Close()
}
