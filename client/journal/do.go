package journal

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.com/idempotency/client"
	"example.com/idempotency/client/internal/truncate"
)

// This file sends entries through an http.Client.

// A KeepFunc keeps the answer of an intent, where the program finds it again, and returns
// what the journal is to note as its result. It gets every answer that client.Transport
// returns, a refusal by the business among them, but for those that are [ErrUnserved]. With an error,
// the intent stays pending. It may be called again for the same answer if the process is killed after
// it. The body is closed by the caller. Without a CheckRedirect of its own, an http.Client of the journal has that of
// package client: a redirect that is another request is the answer.
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
	answers := *c
	if answers.CheckRedirect == nil {
		answers.CheckRedirect = client.CheckRedirect // the answer is that of the intent, and not of a GET behind it
	}
	resp, err := answers.Do(r)
	if err != nil {
		var failed *client.Error
		if errors.As(err, &failed) {
			err = j.learn(&e, failed.Expires, err)
		}
		return e, truncate.Error(err) // it may have the URL of a redirect
	}
	defer func() { _ = resp.Body.Close() }()
	var result []byte
	if client.Unserved(resp) || c.CheckRedirect == nil && isElsewhere(resp) {
		err = fmt.Errorf("%w: status %d", ErrUnserved, resp.StatusCode)
	} else {
		result, err = keep(ctx, e, resp)
	}
	if err != nil {
		expires, _ := client.Expires(resp)
		err = j.learn(&e, expires, err)
		return e, err
	}
	return j.finish(e.Name, result)
}

// isElsewhere reports whether an answer says that the same request has to be sent to another place. The last
// of ten is not followed.
func isElsewhere(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect
}
