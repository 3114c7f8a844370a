package humaidempotency

import (
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"example.com/idempotency/internal/frame"
)

// humaContext gives the embedded context a name that is not the name of one of its methods.
type humaContext huma.Context

// A runContext is the context of a handler behind a guard: it reads the request that the guard
// hands on, and writes into the guard's writer. All else is the adapter's.
type runContext struct {
	humaContext
	r      *http.Request
	w      http.ResponseWriter
	status int
}

var _ huma.Context = (*runContext)(nil)

// maxFormMemory is what a form may hold in memory before its files go to disk: as much as with
// huma's adapters.
const maxFormMemory = 8 << 10

func (c *runContext) Context() context.Context { return c.r.Context() }

func (c *runContext) BodyReader() io.Reader { return c.r.Body }

func (c *runContext) GetMultipartForm() (*multipart.Form, error) {
	err := c.r.ParseMultipartForm(maxFormMemory)
	return c.r.MultipartForm, err
}

func (c *runContext) SetReadDeadline(deadline time.Time) error {
	return huma.SetReadDeadline(c.w, deadline)
}

func (c *runContext) SetStatus(status int) {
	c.status = status
	c.w.WriteHeader(status)
}

func (c *runContext) Status() int { return c.status }

func (c *runContext) SetHeader(name, value string) { c.w.Header().Set(name, value) }

func (c *runContext) AppendHeader(name, value string) { c.w.Header().Add(name, value) }

func (c *runContext) BodyWriter() io.Writer { return c.w }

// A contextWriter is the writer of the guard. It tells the context outside the status of the answer,
// and writes the body where that one does: middleware outside may encode or count it.
type contextWriter struct {
	http.ResponseWriter
	ctx  huma.Context
	body io.Writer // of ctx, once it was asked for
}

func (w *contextWriter) WriteHeader(status int) {
	if status < http.StatusOK { // that is not the answer
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.ctx.SetStatus(status)
}

func (w *contextWriter) Write(p []byte) (int, error) { return w.bodyWriter().Write(p) }

func (w *contextWriter) bodyWriter() io.Writer {
	if w.body == nil {
		w.body = w.ctx.BodyWriter()
	}
	return w.body
}

// FlushError serves http.ResponseController.
func (w *contextWriter) FlushError() error {
	if f, ok := w.bodyWriter().(http.Flusher); ok {
		f.Flush()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap serves http.ResponseController.
func (w *contextWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A lookContext is the context of a handler beside a guard that only looks on. It hands everything
// to the adapter's context.
type lookContext struct {
	runContext
	outside http.ResponseWriter // the adapter's
}

// Unwrap is for the adapter's function of that name.
func (c *lookContext) Unwrap() huma.Context { return c.humaContext }

func (c *lookContext) SetReadDeadline(deadline time.Time) error {
	return c.humaContext.SetReadDeadline(deadline)
}

func (c *lookContext) SetStatus(status int) {
	c.humaContext.SetStatus(status)
	c.w.(frame.Tap).Note(status, nil)
}

func (c *lookContext) Status() int { return c.humaContext.Status() }

func (c *lookContext) SetHeader(name, value string) { c.humaContext.SetHeader(name, value) }

func (c *lookContext) AppendHeader(name, value string) { c.humaContext.AppendHeader(name, value) }

// BodyWriter returns the guard's writer, which can do the same as the adapter's. Middleware may have
// one of its own: what it writes is seen where it goes.
func (c *lookContext) BodyWriter() io.Writer {
	w := c.humaContext.BodyWriter()
	if reflect.TypeOf(w).Comparable() && w == io.Writer(c.outside) {
		return c.w
	}
	noting := notingWriter{w, c.w.(frame.Tap)}
	if f, ok := w.(http.Flusher); ok {
		return notingFlusher{noting, f}
	}
	return noting
}

type notingWriter struct {
	io.Writer
	tap frame.Tap
}

type notingFlusher struct {
	notingWriter
	http.Flusher
}

func (w notingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.tap.Note(http.StatusOK, p[:n])
	return n, err
}
