// Package reread lets a function of the program look at a request whose body has been read. The function may parse a
// form: it gets a copy, so the handler finds the request as it was.
package reread

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

type copyKey struct{}

// Ask calls a function with a copy of r that has the body, and no form yet. The copy is found by [From] of its context, for
// a function that asks a web framework in place of its argument.
func Ask[T any](f func(*http.Request, []byte) T, r *http.Request, body []byte) T {
	ctx := &within{Context: r.Context()}
	again := r.WithContext(ctx)
	ctx.request = again
	again.Body, again.ContentLength, again.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	again.Form, again.PostForm, again.MultipartForm = nil, nil, nil
	defer RemoveForm(again, nil)
	return f(again, body)
}

// Try is Ask for a function that may fail.
func Try[T any](f func(*http.Request, []byte) (T, error), r *http.Request, body []byte) (value T, err error) {
	err = Ask(func(r *http.Request, body []byte) (err error) { value, err = f(r, body); return err }, r, body)
	return value, err
}

// within is the context of a copy.
type within struct {
	context.Context //nolint:containedctx // it is one
	request         *http.Request
}

// Value implements [context.Context].
func (c *within) Value(key any) any {
	if key == (copyKey{}) {
		return c.request
	}
	return c.Context.Value(key)
}

// From returns the copy that a context belongs to.
func From(ctx context.Context) (again *http.Request, ok bool) {
	again, ok = ctx.Value(copyKey{}).(*http.Request)
	return again, ok
}

// RemoveForm deletes the temporary files of a form that was parsed on a copy of a request: net/http cleans up after its
// own request only. It leaves those that the original has as well, if there is one.
func RemoveForm(again, original *http.Request) {
	if form := again.MultipartForm; form != nil && (original == nil || original.MultipartForm == nil) {
		_ = form.RemoveAll()
	}
}
