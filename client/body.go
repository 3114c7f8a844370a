package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// pin makes the body of a request one that can be sent again with the same bytes. The
// request is the transport's own; its body is closed in any event.
func pin(r *http.Request, limit int64) error {
	if r.Body == nil || r.Body == http.NoBody {
		r.GetBody = nil // of a body that was taken away
		return nil
	}
	if r.GetBody != nil {
		return nil
	}
	if r.ContentLength > limit {
		closeBody(r)
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrBodyTooLarge, r.ContentLength, limit)
	}
	data, err := receive(r.Context(), r.Body, limit+1)
	switch n := int64(len(data)); {
	case err != nil:
		return fmt.Errorf("client: reading the request body: %w", err)
	case n > limit:
		return fmt.Errorf("%w: the limit is %d bytes", ErrBodyTooLarge, limit)
	case r.ContentLength > 0 && r.ContentLength != n:
		return fmt.Errorf("client: the request body has %d bytes, and declares %d", n, r.ContentLength)
	case len(r.Trailer) > 0:
		r.ContentLength = -1 // a body of known length has no trailer
	default:
		r.ContentLength = n
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	r.Body, err = r.GetBody()
	return err
}

// receive reads a body to its end or limit, and closes it. A Read that hangs is not waited
// for beyond the context, whether Close ends it or not.
func receive(ctx context.Context, body io.ReadCloser, limit int64) (data []byte, err error) {
	defer func() { _ = body.Close() }()
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		r := result{err: io.ErrUnexpectedEOF} // of a Read that ends its goroutine
		defer func() { read <- r }()
		r.data, r.err = io.ReadAll(io.LimitReader(body, limit))
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-read:
		return r.data, r.err
	}
}

// closeBody closes the body of a request that is not sent.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// hold reads the body of an answer into memory if its length is declared and within the
// limit. So an answer that is cut short is found out while it can still be asked for
// again. What has no declared length may be a stream that the caller wants as it comes.
func hold(resp *http.Response, limit int64) (held bool, err error) {
	if resp.ContentLength < 0 || resp.ContentLength > limit || resp.Body == nil ||
		resp.StatusCode == http.StatusSwitchingProtocols {
		return false, nil
	}
	body := resp.Body
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if int64(len(data)) > limit { // a RoundTripper that unpacks it has left the length as it was
		resp.Body = &prefixedBody{Reader: io.MultiReader(bytes.NewReader(data), body), Closer: body}
		return false, nil
	}
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return true, err
}

// discard reads what is left of an answer that nobody will read, so that its connection
// can be used again, unless that takes longer than a new connection.
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
}

func (b *streamedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	b.cancel(nil)
	if !errors.Is(err, io.EOF) {
		err = b.broken(err)
	}
	return n, err
}

func (b *streamedBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
