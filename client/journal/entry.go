package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency/client"
)

// This file has what an entry tells, and how it is sent.

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

// ErrDone says that an entry is finished, and has no request any more.
var ErrDone = errors.New("journal: the intent is finished")

// ErrNoKey says that an http.Client does not send the keys of entries: its transport is not a
// client.Transport. Nothing was sent.
var ErrNoKey = errors.New("journal: the http.Client has no client.Transport, and would send no key")

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

// A KeepFunc keeps the answer of an intent, where the program finds it again, and returns
// what the journal is to note as its result. It gets every answer that client.Transport
// returns, a refusal by the business among them. With an error, the intent stays pending. It
// may be called again for the same answer if the process is killed after it. The body is
// closed by the caller.
type KeepFunc func(ctx context.Context, e Entry, answer *http.Response) (result []byte, err error)

// Do carries out an intent: it begins it, sends its request, hands the answer to keep, and
// finishes it. An intent that is pending already is sent with the request that was noted
// then. One that is finished is not sent: Do returns what is known. The transport of c must
// be a client.Transport, or have one below; [ErrNoKey] says that it cannot.
//
// With an error, the intent is pending unless nothing was begun, and [Journal.Resume] or the
// same call continues it.
func (j *Journal) Do(ctx context.Context, c *http.Client, name string, r Request, keep KeepFunc) (Entry, error) {
	e, err := j.Begin(ctx, name, r)
	if err != nil || e.Done() {
		return e, err
	}
	return j.send(ctx, c, e, keep)
}

// Resume carries out all pending intents, the oldest first. It goes on after an intent that
// fails, and returns all errors. A program calls it at its start.
func (j *Journal) Resume(ctx context.Context, c *http.Client, keep KeepFunc) error {
	pending, err := j.Pending(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range pending {
		if _, err := j.send(ctx, c, e, keep); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (j *Journal) send(ctx context.Context, c *http.Client, e Entry, keep KeepFunc) (Entry, error) {
	switch c.Transport.(type) {
	case nil, *http.Transport:
		return e, ErrNoKey
	}
	r, err := e.HTTPRequest(ctx)
	if err != nil {
		return e, err
	}
	resp, err := c.Do(r)
	if err != nil {
		var failed *client.Error
		if errors.As(err, &failed) {
			err = j.learn(&e, failed.Expires, err)
		}
		return e, err
	}
	defer func() { _ = resp.Body.Close() }()
	result, err := keep(ctx, e, resp)
	if err != nil {
		expires, _ := client.Expires(resp)
		err = j.learn(&e, expires, err)
		return e, err
	}
	return j.finish(e.Name, result)
}

// clone returns an entry whose bytes the caller may change.
func (e Entry) clone() Entry {
	e.Request.Body = slices.Clone(e.Request.Body)
	e.Result = slices.Clone(e.Result)
	return e
}
