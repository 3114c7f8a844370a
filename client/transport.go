package client

import (
	"maps"
	"net/http"
)

// A Transport sends each request with one idempotency key, however often it has to be
// sent. It is an http.RoundTripper on top of another one, for use in an http.Client:
//
//	transport, err := client.New(nil)
//	c := &http.Client{Transport: transport}
//
// Requests with the methods of [WithMethods] get a key unless the caller has given one, in
// the header field or by [WithKey]. Such requests, and those whose method is idempotent by
// definition, are sent again when that can help; all others are sent once.
//
// A request with a key ends in the answer or in an [*Error]. Other requests end as without
// a Transport, with the last answer or the last error.
//
// Do not set the Timeout of the http.Client: when it expires, the client replaces the
// error, and the key in it is lost. Use [WithDeadline] or the context of the request.
//
// A Transport is safe for concurrent use. It starts no goroutine but that which reads a
// body without GetBody.
type Transport struct {
	base   http.RoundTripper
	set    settings
	budget *budget
}

// New returns a transport on top of base, or of http.DefaultTransport if base is nil. Base
// may be any RoundTripper; for one that retries by itself, set [WithAttempts] to 1. All
// mistakes in the options are reported at once.
func New(base http.RoundTripper, opts ...Option) (*Transport, error) {
	set, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, set: set, budget: newBudget(&set)}, nil
}

// RoundTrip sends a request. It returns a response or an error, never both:
//
//   - the answer, recorded or new;
//   - the last answer, where no retry is left and it is known that none of the attempts
//     has executed the request, or where the request has no key;
//   - an [*Error] for a request with a key, where its outcome is unknown, or the server
//     refuses the key;
//   - the error of the last attempt, for a request without a key.
//
// A body without GetBody is read first; one that never comes is waited for as long as the
// context of the request lasts, and [WithDeadline] counts from its end. The trailer is sent
// with each attempt.
//
// An answer whose length is declared, up to [WithMaxBody], has been received as a whole.
// The body of another one may break off, which is an [*Error] of its Read.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := t.keyOf(r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	if key.end != nil {
		defer key.end()
	}
	c := &call{t: t, key: key, req: r.Clone(r.Context())}
	if key.value != "" {
		if c.req.Header == nil {
			c.req.Header = make(http.Header)
		}
		maps.DeleteFunc(c.req.Header, func(name string, _ []string) bool { return t.isKeyField(name) })
		c.req.Header[t.set.header] = []string{key.value}
	}
	c.req.Trailer = r.Trailer // which the body fills in
	if !c.repeatable() {
		return c.once()
	}
	return c.run()
}

// CloseIdleConnections closes those of base, if it has the method, as http.Client expects.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}
