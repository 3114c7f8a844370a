package fiberidempotency

import (
	"bytes"
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
		if len(name) >= len(field) && bytes.EqualFold(bytes.TrimSpace(name), field) {
			return true
		}
	}
	return false
}

// pattern returns what events call a route.
func pattern(c fiber.Ctx) string { return c.Method() + " " + c.FullPath() }

// makeRequest makes the request of an exchange. What the client has sent as its target counts,
// whatever middleware has made of the path.
func (x *exchange) makeRequest() {
	c := x.c
	in := &c.RequestCtx().Request
	x.makeHeader(in)
	text := &x.writer.text
	target := text.copy(in.Header.RequestURI())
	x.request = *(&http.Request{
		Method: methodOf(text, in.Header.Method()), URL: x.parse(target), RequestURI: target,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: x.request.Header, Host: text.copy(in.Header.Host()),
		RemoteAddr: text.address(c.RequestCtx().RemoteAddr()), TLS: c.RequestCtx().TLSConnectionState(),
		Pattern: text.pattern(c),
	}).WithContext(x)
	r := &x.request
	if in.IsBodyStream() {
		r.ContentLength = int64(max(in.Header.ContentLength(), -1))
		r.Body = &stream{in.BodyStream(), r.ContentLength}
	} else if body, err := bodyOf(c, in); err != nil {
		unreadable, w := io.Pipe()
		_ = w.CloseWithError(err)
		r.Body, r.ContentLength = unreadable, -1
	} else {
		x.body.Reset(body)
		r.Body, r.ContentLength = &x.body, int64(len(body))
	}
}

// parse returns the URL of a target. That of most is a path in which nothing has to be decoded.
func (x *exchange) parse(target string) *url.URL {
	if isPlain(target) {
		x.url.Path = target
		return &x.url
	}
	u, err := url.ParseRequestURI(target)
	if err != nil { // fiber serves such a target too, and the guard compares it as it came
		u = &url.URL{}
		u.Path, u.RawQuery, _ = strings.Cut(target, "?")
	}
	return u
}

// isPlain reports whether a target is a path that url.ParseRequestURI would leave as it is.
func isPlain(target string) bool {
	if !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") {
		return false
	}
	for _, b := range []byte(target) {
		if (b|0x20 < 'a' || b|0x20 > 'z') && (b < '-' || b > '9') && b != '_' { // "-./" and digits are among them
			return false
		}
	}
	return true
}

// methodOf returns a method.
func methodOf(text *text, method []byte) string {
	if string(method) == http.MethodPost { // as most are that a guard protects
		return http.MethodPost
	}
	return text.copy(method)
}

// A body is that of a request, in memory.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// A stream is the body of a request that arrives while it is read. fasthttp ends one of a declared length as if
// it were whole when the client breaks it off. One in chunks it does not.
type stream struct {
	io.Reader
	left int64 // below zero for a body that does not say how long it is
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if s.left -= int64(n); err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (*stream) Close() error { return nil }

// makeHeader copies the header of a request.
//
// fasthttp lets a space pass before the colon, which a server must refuse (RFC 9112, section 5.1), and takes it
// for a part of the name. The guard shall not pass over the key, or a credential, of such a field: so it
// gets the field under its name, with a value that nobody accepts.
func (x *exchange) makeHeader(in *fasthttp.Request) {
	header, text := make(http.Header, usualFields), &x.writer.text
	for name, value := range in.Header.All() {
		name, value := text.copy(name), text.copy(value)
		plain := strings.Trim(name, " \t")
		if plain != name {
			value = name + ": " + value
		}
		switch key := http.CanonicalHeaderKey(plain); key {
		case "Host", "Transfer-Encoding":
		default:
			x.add(header, key, value)
		}
	}
	x.request.Header = header
}

// usualFields is how many fields a map has room for from the beginning.
const usualFields = 8

// A lateBody is a body that is a stream, beside a guard that only looks on. The handler reads it as
// ever. If it has asked for the whole body, and got it, the guard sees it then, and otherwise never.
type lateBody struct {
	request *fasthttp.Request
	body
}

func (b *lateBody) fill() bool {
	if b.request.IsBodyStream() {
		return false
	}
	body := b.request.Body()
	b.Reset(body)
	return len(body) == b.request.Header.ContentLength()
}

// noServer is the local address of a request that did not come by a connection, as in fiber's adaptor.
const noServer = "0.0.0.0:0"

// bodyOf returns the body that the guard compares, or why it may be only a part of what was sent.
func bodyOf(c fiber.Ctx, in *fasthttp.Request) ([]byte, error) {
	if form := formOf(c, in); form != nil { // which says where it ends
		return form, nil
	}
	switch body, limit := in.Body(), c.App().Config().BodyLimit; {
	case len(body) == 0: // the guard knows whether there was one
		return nil, nil
	case c.App().Server().StreamRequestBody && len(body) != in.Header.ContentLength():
		return nil, http.ErrBodyReadAfterClose // by middleware outside, which fasthttp has not told of errors
	case len(body) == limit && c.RequestCtx().LocalAddr().String() == noServer:
		return nil, &http.MaxBytesError{Limit: int64(limit)} // adaptor.FiberApp leaves out the rest
	default:
		return body, nil
	}
}

// formOf returns the body of a form that fasthttp has parsed. It has only the parts, without their order,
// and would write them in another one each time.
func formOf(c fiber.Ctx, in *fasthttp.Request) []byte {
	if kind := bytes.TrimSpace(in.Header.ContentType()); len(kind) == 0 || kind[0]|0x20 != 'm' { // as most have it
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(string(in.Header.ContentType()))
	if err != nil || mediaType != fiber.MIMEMultipartForm || len(in.Header.ContentEncoding()) > 0 ||
		c.App().Server().DisablePreParseMultipartForm {
		return nil
	}
	form, err := in.MultipartForm()
	if err != nil {
		return nil
	}
	body, err := encode(form, params["boundary"])
	if err != nil {
		return nil
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
