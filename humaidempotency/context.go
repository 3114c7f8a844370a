package humaidempotency

import (
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
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
