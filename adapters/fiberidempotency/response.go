package fiberidempotency

import (
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

// fields returns the header of a response, without what fasthttp adds when it sends it.
func fields(c fiber.Ctx, response *fasthttp.Response) http.Header {
	h := &response.Header
	typed := len(h.ContentType()) > 0 // with a type, be it the default
	h.SetNoDefaultContentType(true)
	defer h.SetNoDefaultContentType(!typed || c.App().Server().NoDefaultContentType)
	header := http.Header{}
	for name, value := range h.All() {
		header.Add(string(name), string(value))
	}
	for name := range h.Trailers() {
		header.Del(string(name))
	}
	for _, name := range framing {
		header.Del(name)
	}
	return header
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
	header, status := fields(c, response), response.StatusCode()
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
	for name := range x.fields { // and not what the guard has set, such as the echo of a key
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
	status int
	body   []byte
	past   bool // the handler has sent its answer itself, and it is lost
}

// writers keeps the memory of writers for further answers.
var writers = sync.Pool{New: func() any { return &writer{header: http.Header{}} }}

// free gives the writer back to the pool, unless it has become so large that the garbage collector should
// have it.
func (w *writer) free() {
	const maxKept = 64 << 10
	if cap(w.body) > maxKept {
		return
	}
	clear(w.header)
	*w = writer{header: w.header, body: w.body[:0]}
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
	var names []string
	for name := range response.Header.All() {
		names = append(names, string(name))
	}
	for name := range response.Header.Trailers() { // All leaves them out in some versions
		names = append(names, string(name))
	}
	for _, name := range names {
		response.Header.Del(name)
	}
	for name, values := range w.header {
		set(response, name, values)
	}
	response.SetStatusCode(w.status)
	response.SetBody(w.body) // a copy: what middleware outside writes behind a raw body replaces it
}

// set sets a field of a response.
func set(response *fasthttp.Response, name string, values []string) {
	if slices.Contains(framing, name) {
		return
	}
	if name == fiber.HeaderContentType && len(values) == 0 {
		response.Header.SetNoDefaultContentType(true)
	}
	for i, value := range values {
		if i == 0 {
			response.Header.Set(name, value)
			continue
		}
		response.Header.Add(name, value)
	}
}
