package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"example.com/idempotency/client/internal/truncate"
)

// This file deals with the bodies of requests. Those of answers are in response_body.go.

// pin makes the body of a request one that can be sent again with the same bytes. The
// request is the transport's own; its body is closed in any event.
func pin(r *http.Request, limit int64) error {
	if noBody(r) {
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
	data, err := receive(r, limit+1)
	switch n := int64(len(data)); {
	case err != nil:
		return fmt.Errorf("client: reading the request body: %w", truncate.Error(err))
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

func noBody(r *http.Request) bool { return r.Body == nil || r.Body == http.NoBody }

// receive reads the body of a request to its end or limit, and closes it. A Read that hangs
// is not waited for once the request has ended, whether Close ends it or not.
func receive(r *http.Request, limit int64) (data []byte, err error) {
	body := r.Body
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
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	case <-r.Cancel: //nolint:staticcheck // net/http still obeys it, and so does the client
		return nil, errCanceled
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
