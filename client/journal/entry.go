package journal

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency/client"
)

// This file has what an entry tells.

// A Request is what an intent sends: all that the server compares when the key comes again.
// Credentials do not belong here. Add them to the request of [Entry.HTTPRequest], or in a
// RoundTripper, so that the file does not keep them.
type Request struct {
	Method, URL string
	// ContentType is the header field of that name. Empty sends none.
	ContentType string
	Body        []byte
}

// An Entry is an intent in a [Journal].
type Entry struct {
	// Name is what the intent was begun under, and Key the key to send it with.
	Name, Key string
	// Request is what was noted with it. The body of a finished entry is not kept.
	Request Request
	// Since is when the intent was begun. The server must not have forgotten the key.
	Since time.Time
	// Expires is when the server forgets the key, as far as it has said to [Journal.Do] or
	// [Journal.Resume]. The zero Time stands for a time that is not known.
	Expires time.Time
	// Resumed says that the key may have been sent before, by this process or by one that
	// has ended, with an unknown result.
	Resumed bool
	// Finished is when the intent was finished; zero as long as it is pending.
	Finished time.Time
	// Result is what [Journal.Done] noted.
	Result []byte
}

// Done reports whether the intent is finished. There is nothing to send.
func (e Entry) Done() bool { return !e.Finished.IsZero() }

// Context returns a context for the request of the intent. A client.Transport sends it with
// the key of the entry, and not at all if the key is older than the server remembers.
func (e Entry) Context(ctx context.Context) context.Context {
	return client.Intent{Key: e.Key, Since: e.Since, Expires: e.Expires, Resumed: e.Resumed || e.Done()}.Context(ctx)
}

// HTTPRequest returns the request of a pending entry, under its [Entry.Context]. The caller
// may add to it what the server does not compare, such as credentials.
func (e Entry) HTTPRequest(ctx context.Context) (*http.Request, error) {
	if e.Done() {
		return nil, fmt.Errorf("%w: %s", ErrDone, e.Name)
	}
	r, err := http.NewRequestWithContext(e.Context(ctx), e.Request.Method, e.Request.URL, bytes.NewReader(e.Request.Body))
	if err != nil {
		return nil, fmt.Errorf("journal: the request of %s: %w", e.Name, err)
	}
	if e.Request.ContentType != "" {
		r.Header.Set("Content-Type", e.Request.ContentType)
	}
	return r, nil
}
