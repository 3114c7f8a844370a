package client

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"strings"
)

// This file knows the RoundTripper below: whether all that it sends is seen, and how it is
// kept from repeating a request by itself.

// AsSingleTrip vouches for a RoundTripper, such as those of otelhttp and oauth2: it hands each
// request on once, with its context, and sends it in no other way. A request that got no
// connection below it is then known not to have been sent, as with an *http.Transport. If that
// is wrong, an attempt that was executed may count as one that was not sent.
func AsSingleTrip(rt http.RoundTripper) http.RoundTripper { return singleTrip{rt} }

type singleTrip struct{ http.RoundTripper }

// CloseIdleConnections closes those of the RoundTripper.
func (s singleTrip) CloseIdleConnections() { closeIdleConnections(s.RoundTripper) }

// closeIdleConnections closes those of a RoundTripper, if it has the method.
func closeIdleConnections(rt http.RoundTripper) {
	if rt, ok := rt.(interface{ CloseIdleConnections() }); ok {
		rt.CloseIdleConnections()
	}
}

// seesEverything reports whether whatever is sent through a RoundTripper is seen from above.
func seesEverything(rt http.RoundTripper) bool {
	switch rt.(type) {
	case *http.Transport, singleTrip:
		return true
	}
	return false
}

// An *http.Transport takes certain header fields for the promise that a repetition is safe, and
// repeats a request whose connection breaks before the answer. At a server that ignores keys,
// that is a second effect. It finds the fields in the header by these names, in this spelling.
var promises = []string{"Idempotency-Key", "X-Idempotency-Key"}

// unrepeatable makes an attempt that is sent once at most. The names of header fields have no
// case on the wire, so that another spelling hides them from an *http.Transport, which still
// replaces a connection that has died before anything was sent. Any other base may look for
// the field. There, the attempt cannot be repeated because it cannot rewind its body.
func unrepeatable(req *http.Request, base http.RoundTripper) {
	if !seesEverything(base) {
		req.GetBody = nil
		if noBody(req) {
			req.Body = io.NopCloser(bytes.NewReader(nil))
		}
		return
	}
	req.Header = maps.Clone(req.Header)
	for _, name := range promises {
		if values, ok := req.Header[name]; ok {
			delete(req.Header, name)
			req.Header[strings.ToLower(name)] = values
		}
	}
}
