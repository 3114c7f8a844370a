package client

import (
	"cmp"
	"maps"
	"net/http"
	"strings"
)

// This file leads a request into a call, under its key.

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
	server, declared := t.set.servers.of(r)
	c := &call{t: t, server: server, declared: declared, ttl: cmp.Or(server.TTL, t.set.ttl), req: r.Clone(r.Context())}
	c.req.Trailer = r.Trailer // which the body fills in
	var err error
	if c.key, err = keyOf(c.req, &t.set, server); err != nil {
		closeBody(c.req)
		return nil, err
	}
	if c.key.end != nil {
		defer c.key.end()
	}
	if c.key.field != "" && c.key.value != "" {
		removeField(c.req.Header, c.key.field)
		setField(c.req, c.key.field, c.key.value)
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
