package fiberidempotency

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// The answer on its way from fiber's response to the guard, and back from the guard, which may have
// another one.

// fields copies the header of a response, without what fasthttp adds when it sends it.
func (x *exchange) fields(header http.Header, response *fasthttp.Response) {
	h := &response.Header
	typed := len(h.ContentType()) > 0 // with a type, be it the default
	h.SetNoDefaultContentType(true)
	defer h.SetNoDefaultContentType(!typed || x.c.App().Server().NoDefaultContentType)
	for name, value := range h.All() {
		x.add(header, http.CanonicalHeaderKey(x.writer.text.copy(name)), x.writer.text.copy(value))
	}
	for name := range h.Trailers() {
		header.Del(string(name))
	}
	for _, name := range framing {
		delete(header, name)
	}
}

// add adds a value to a field.
func (x *exchange) add(header http.Header, name, value string) {
	if values := header[name]; values != nil {
		header[name] = append(values, value)
		return
	}
	if len(x.room) == 0 {
		x.room = make([]string, len(x.values))
	}
	x.room[0] = value
	header[name], x.room = x.room[:1:1], x.room[1:]
}

// framing has the fields that fasthttp makes of the body.
var framing = []string{"Content-Length", "Transfer-Encoding", "Trailer", "Date"}

// record writes the answer of the handlers into the record. A body that cannot be read to its end
// is an error, and nothing is written.
func (x *exchange) record(w http.ResponseWriter) error {
	c := x.c
	response := c.RequestCtx().LastTimeoutErrorResponse()
	if response == nil {
		response = c.Response()
	}
	header, status := x.writer.inner, response.StatusCode()
	clear(header) // in the second try
	x.fields(header, response)
	body, err := read(response)
	if err != nil {
		return err
	}
	if x.gone && len(body) == 0 && response.Header.ContentLength() != 0 {
		x.writer.past = true // a stream, which the client has
		return nil
	}
	if status == http.StatusOK && len(body) == 0 && maps.EqualFunc(header, w.Header(), slices.Equal) {
		return nil // the handler has said nothing
	}
	if len(body) > 0 && header["Content-Type"] == nil {
		header["Content-Type"] = nil // which keeps net/http's rules from guessing one
		if value := response.Header.ContentType(); len(value) > 0 {
			header.Set("Content-Type", string(value))
		}
	}
	for name := range x.writer.outer { // and not what the guard has set, such as the echo of a key
		delete(w.Header(), name)
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, err = w.Write(body)
	if len(body) == 0 {
		return nil // a status without a body refuses it
	}
	return err
}

// read returns the body of a response.
func read(response *fasthttp.Response) ([]byte, error) {
	if !response.IsBodyStream() {
		return response.Body(), nil
	}
	stream, size := response.BodyStream(), response.Header.ContentLength()
	if size >= 0 {
		stream = io.LimitReader(stream, int64(size))
	}
	body, err := io.ReadAll(stream)
	if err == nil {
		err = response.CloseBodyStream()
	}
	if err == nil && len(body) < size {
		err = fmt.Errorf("fiberidempotency: the body ends after %d bytes of %d", len(body), size)
	}
	return body, err
}

// A writer keeps what the guard answers.
type writer struct {
	header http.Header
	outer  http.Header // of the response outside the guard
	inner  http.Header // of the response of the handlers
	status int
	body   []byte
	past   bool // the handler has sent its answer itself, and it is lost
	text   text // of what is copied from fasthttp

	name, value []byte // of a field on its way to fasthttp
	names       []byte // of those to be replaced, each in a line
}

// writers keeps the memory of writers for further answers.
var writers = sync.Pool{New: func() any {
	return &writer{header: http.Header{}, outer: http.Header{}, inner: http.Header{}}
}}

// free gives the writer back to the pool, unless it has become so large that the garbage collector should
// have it.
func (w *writer) free() {
	const maxKept = 64 << 10
	if cap(w.body) > maxKept {
		return
	}
	for _, h := range [...]http.Header{w.header, w.outer, w.inner} {
		if len(h) > 0 {
			clear(h)
		}
	}
	w.status, w.body, w.past = 0, w.body[:0], false
	writers.Put(w)
}

// Bypassed tells the guard that an answer went past it.
func (w *writer) Bypassed() bool { return w.past }

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// send makes it fiber's response. If the guard says nothing, the response stays as it is.
func (w *writer) send(c fiber.Ctx) {
	switch {
	case w.status == 0:
	case timedOut(c):
		var response fasthttp.Response
		w.fill(&response)
		c.RequestCtx().TimeoutErrorWithResponse(&response)
	default:
		w.fill(c.Response())
	}
}

func (w *writer) fill(response *fasthttp.Response) {
	names := w.names[:0] // as deleting moves those of fasthttp
	for name := range response.Header.All() {
		names = append(append(names, name...), '\n')
	}
	for name := range response.Header.Trailers() { // All leaves them out in some versions
		names = append(append(names, name...), '\n')
	}
	w.names = names
	for len(names) > 0 {
		end := bytes.IndexByte(names, '\n')
		response.Header.DelBytes(names[:end])
		names = names[end+1:]
	}
	for name, values := range w.header {
		w.set(response, name, values)
	}
	response.SetStatusCode(w.status)
	response.SetBody(w.body) // a copy: what middleware outside writes behind a raw body replaces it
}

// set sets a field of a response.
func (w *writer) set(response *fasthttp.Response, name string, values []string) {
	if slices.Contains(framing, name) {
		return
	}
	if name == fiber.HeaderContentType && len(values) == 0 {
		response.Header.SetNoDefaultContentType(true)
	}
	for i, value := range values {
		switch {
		case i > 0:
			response.Header.Add(name, value)
		case isCanonical(name): // which fasthttp would look for longer
			w.name, w.value = append(w.name[:0], name...), append(w.value[:0], value...)
			response.Header.SetCanonical(w.name, w.value)
		default:
			response.Header.Set(name, value)
		}
	}
}

// isCanonical reports whether a name has the spelling of most fields.
func isCanonical(name string) bool {
	upper := true
	for _, b := range []byte(name) {
		switch {
		case b >= 'A' && b <= 'Z':
			if !upper {
				return false
			}
		case b >= 'a' && b <= 'z':
			if upper {
				return false
			}
		case b != '-' && (b < '0' || b > '9'):
			return false
		}
		upper = b == '-'
	}
	return name != ""
}
