package client

import (
	"maps"
	"net/http"
	"strings"
)

// This file has the RoundTripper and its way into a call; retry.go goes on.

// A Transport sends each request with one idempotency key, however often it has to be
// sent. It is an http.RoundTripper on top of another one, for use in an http.Client:
//
//	transport, err := client.New(nil, client.WithServer(profile.Guard(), "payments.example.com"))
//	c := &http.Client{Transport: transport}
//
// Requests with the methods of [WithMethods] get a key unless the caller has given one, in
// the header field or by [WithKey].
//
// A request that was surely not executed is sent again. After an attempt that may have been
// executed, a request is sent again only if that cannot be a second effect: its server honours
// keys, because the program says so ([WithServer]) or because an earlier answer of the route
// has shown it, or its method is idempotent by definition. A request without a key is sent
// again only if its method is idempotent and its body can be sent twice.
//
// A request with a key ends in the answer or in an [*Error]. Other requests end as without
// a Transport, with the last answer or the last error.
//
// Do not set the Timeout of the http.Client: when it expires, the client replaces the
// error, and the key in it is lost. Use [WithTimeout] or the context of the request.
//
// A Transport is safe for concurrent use. It starts a goroutine only to read a body without
// GetBody, which ends when that Read does.
type Transport struct {
	base    http.RoundTripper
	set     settings
	budgets budgets
	routes  routes
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
	return &Transport{base: base, set: set}, nil
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
// The body of a request with a key is read first if it has no GetBody. A body that never
// comes is waited for as long as the context of the request lasts, and [WithTimeout] counts
// from its end. The trailer is sent with each attempt.
//
// An answer whose length is declared, up to [WithMaxBody], has been received as a whole.
// The body of another one may break off, which is an [*Error] of its Read.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	server, declared := t.serverOf(r)
	c := &call{t: t, server: server, declared: declared, req: r.Clone(r.Context())}
	c.req.Trailer = r.Trailer // which the body fills in
	var err error
	if c.key, err = t.keyOf(c.req, server); err != nil {
		closeBody(c.req)
		return nil, err
	}
	if c.key.end != nil {
		defer c.key.end()
	}
	if c.key.withheld { // http.Client may have copied it
		removeField(c.req.Header, server.KeyHeader)
	}
	if c.key.field != "" && c.key.value != "" {
		if c.req.Header == nil {
			c.req.Header = make(http.Header)
		}
		removeField(c.req.Header, c.key.field)
		c.req.Header[http.CanonicalHeaderKey(c.key.field)] = []string{c.key.value}
	}
	if !c.repeatable() {
		return c.once()
	}
	return c.run()
}

// removeField removes a field, however its name is spelled in the map.
func removeField(h http.Header, field string) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.EqualFold(name, field) })
}

// CloseIdleConnections closes those of base, if it has the method, as http.Client expects.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}
