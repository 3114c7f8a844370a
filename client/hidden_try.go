package client

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"strings"
)

// This file keeps an *http.Transport from repeating a request by itself. It takes certain
// header fields for the promise that a repetition is safe, and repeats a request whose
// connection breaks before the answer. At a server that ignores keys, that is a second effect.

// promises are the names by which an *http.Transport finds these fields in the header, in
// this spelling.
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
