package fiberidempotency

import (
	"bytes"
	"context"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// The request that the guard sees. It outlives fiber's, whose memory is used again: so everything
// is copied, but for the body, which the guard reads before a handler runs.

// has reports whether a request may have a field. Whether one with an odd name counts is for the guard to say.
func has(c fiber.Ctx, field []byte) bool {
	for name := range c.RequestCtx().Request.Header.All() {
		if bytes.EqualFold(bytes.TrimSpace(name), field) {
			return true
		}
	}
	return false
}

// pattern returns what events call a route.
func pattern(c fiber.Ctx) string { return c.Method() + " " + c.FullPath() }

// newRequest returns the request of an exchange. What the client has sent as its target counts,
// whatever middleware has made of the path.
func (x *exchange) newRequest(ctx context.Context) *http.Request {
	c := x.c
	in := &c.RequestCtx().Request
	target := string(in.Header.RequestURI())
	u, err := url.ParseRequestURI(target)
	if err != nil { // fiber serves such a target too, and the guard compares it as it came
		u = &url.URL{}
		u.Path, u.RawQuery, _ = strings.Cut(target, "?")
	}
	header := headerOf(in)
	header.Del("Host")
	header.Del("Transfer-Encoding")
	r := &http.Request{
		Method: string(in.Header.Method()), URL: u, RequestURI: target,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Host: string(in.Header.Host()),
		RemoteAddr: c.RequestCtx().RemoteAddr().String(), TLS: c.RequestCtx().TLSConnectionState(),
		Pattern: pattern(c),
	}
	if in.IsBodyStream() {
		r.ContentLength = int64(max(in.Header.ContentLength(), -1))
		x.stream = &stream{Reader: in.BodyStream(), left: r.ContentLength}
		r.Body = x.stream
	} else {
		body := bodyOf(c, in)
		x.body.Reset(body)
		r.Body, r.ContentLength = &x.body, int64(len(body))
	}
	return r.WithContext(ctx)
}

// A body is that of a request, in memory.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// A stream is the body of a request that arrives while it is read.
type stream struct {
	io.Reader
	left  int64 // -1 for a body that does not say how long it is
	ended bool  // all of it was read
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.left >= 0 {
		s.left = max(0, s.left-int64(n))
	}
	s.ended = s.ended || err == io.EOF || s.left == 0
	return n, err
}

func (*stream) Close() error { return nil }

// headerOf copies the header of a request, all names and values into one string.
//
// fasthttp lets a space pass before the colon, which a server must refuse (RFC 9112, section 5.1), and takes it
// for a part of the name. The guard shall not pass over the key, or a credential, of such a field: so it
// gets the field under its name, with a value that nobody accepts.
func headerOf(in *fasthttp.Request) http.Header {
	size, n := 0, 0
	for name, value := range in.Header.All() {
		size, n = size+len(name)+len(value), n+1
	}
	var text strings.Builder
	text.Grow(size)
	copied := func(b []byte) string {
		start := text.Len()
		text.Write(b)
		return text.String()[start:]
	}
	header, values := make(http.Header, n), make([]string, n)
	for name, value := range in.Header.All() {
		name, value := copied(name), copied(value)
		plain := strings.Trim(name, " \t")
		if plain != name {
			value = name + ": " + value
		}
		key := http.CanonicalHeaderKey(plain)
		if len(header[key]) == 0 {
			header[key], values = values[:0:1], values[1:]
		}
		header[key] = append(header[key], value)
	}
	return header
}

// A lateBody is a body that is a stream, beside a guard that only looks on. The handler reads it as
// ever. If it has asked for the whole body, the guard sees it then, and otherwise never.
type lateBody struct {
	request *fasthttp.Request
	body
}

func (b *lateBody) fill() bool {
	if b.request.IsBodyStream() {
		return false
	}
	b.Reset(b.request.Body())
	return true
}

// bodyOf returns the body that the guard compares. Of a form that fasthttp has parsed it has only
// the parts, without their order, and would write them in another one each time.
func bodyOf(c fiber.Ctx, in *fasthttp.Request) []byte {
	if kind := bytes.TrimSpace(in.Header.ContentType()); len(kind) == 0 || kind[0]|0x20 != 'm' { // as most have it
		return in.Body()
	}
	mediaType, params, err := mime.ParseMediaType(string(in.Header.ContentType()))
	if err != nil || mediaType != fiber.MIMEMultipartForm || len(in.Header.ContentEncoding()) > 0 ||
		c.App().Server().DisablePreParseMultipartForm {
		return in.Body()
	}
	form, err := in.MultipartForm()
	if err != nil {
		return in.Body()
	}
	body, err := encode(form, params["boundary"])
	if err != nil {
		return in.Body()
	}
	return body
}

// encode writes a form with its fields, and then its files, in the order of their names.
func encode(form *multipart.Form, boundary string) ([]byte, error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(form.Value)) {
		for _, value := range form.Value[name] {
			if err := w.WriteField(name, value); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[name] {
			if err := encodeFile(w, file); err != nil {
				return nil, err
			}
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func encodeFile(w *multipart.Writer, file *multipart.FileHeader) error {
	part, err := w.CreatePart(file.Header)
	if err != nil {
		return err
	}
	f, err := file.Open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	_, err = io.Copy(part, f)
	return err
}

// putBack gives the handlers the body of a stream, which the guard has read.
func putBack(c fiber.Ctx, r *http.Request) {
	in := &c.RequestCtx().Request
	if !in.IsBodyStream() {
		return
	}
	if body, err := io.ReadAll(r.Body); err == nil {
		in.SetBody(body)
	}
}
