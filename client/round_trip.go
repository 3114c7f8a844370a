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
//
// If http.Client follows the redirect of a request with a key by another one, and that fails, the
// error is an [*Error] with the key of the first, whose outcome is then unknown; see [CheckRedirect].
// A Location that is no URL leads nowhere. After 301, 302 and 303 that answer is returned, and has the field
// under the name "location", where http.Client does not look. After 307 and 308 it is an [*Error].
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
	send := c.once
	if c.repeatable() {
		send = c.run
	}
	resp, err := send()
	if err != nil && c.key.behind != nil {
		err = c.redirectFailed(err)
	}
	return resp, err
}

// CheckRedirect is for the field of an http.Client above a [Transport]. The client follows a redirect
// that is the same request at another place, with its key (307 and 308), up to ten times. Any other
// redirect is the answer: after 301, 302 and 303 an http.Client sends a GET, and would return what
// comes of that, or its error, although the request has been answered.
func CheckRedirect(r *http.Request, via []*http.Request) error {
	const most = 10
	if len(via) >= most || method(r) != method(via[0]) {
		return http.ErrUseLastResponse
	}
	return nil
}

// removeField removes a field, however its name is spelled in the map.
func removeField(h http.Header, field string) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.EqualFold(name, field) })
}
