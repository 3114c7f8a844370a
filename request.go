package idempotency

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"

	"example.com/idempotency/problem"
)

// An intake is what a guard finds out about a request before it asks the store.
// Nothing has been claimed, and nothing needs undoing, if it fails.
type intake struct {
	key, scope  string
	body        []byte
	buffer      *bodyBuffer // the memory of body, if it is to be reused
	fingerprint Fingerprint
}

// errNoKey says that a request carries no key and needs none.
var errNoKey = errors.New("idempotency: no key")

// A refusal is an error that is answered with a problem document.
type refusal struct{ problem problem.Document }

func (e *refusal) Error() string { return string(e.problem.Code) }

func refused(code problem.Code) *refusal { return &refusal{problem.New(code)} }

// take reads the request up to its fingerprint. The cheap refusals come first, and the
// body is read before anything is claimed: one that drips in holds no claim.
func (g *Guard) take(r *http.Request, in *intake) error {
	var err error
	if in.scope, err = scopeOf(g.core.scope, r); err != nil {
		return refused(problem.ScopeUnresolved)
	}
	if err = g.core.readBody(r, g.set.maxRequestBody, in); err != nil {
		return err
	}
	if g.set.keyFunc != nil {
		in.key, err = g.set.keyFunc(r, in.body)
		switch {
		case err != nil || len(in.key) > maxKeyLen:
			p := problem.New(problem.KeyInvalid)
			p.Detail = "The request does not have the form that its idempotency key is taken from."
			return &refusal{p}
		case in.key == "" && g.set.required:
			return refused(problem.KeyMissing)
		case in.key == "":
			return errNoKey
		}
	}
	if in.fingerprint, err = g.set.fingerprint(r, in.body); err != nil {
		return refused(problem.FingerprintFailed)
	}
	return nil
}

// maxKeyLen is the longest key, in bytes; longer ones do not fit the index of any of
// the systems that keys are handed on to.
const maxKeyLen = 255

// A bodyBuffer is memory for the bodies of requests. A handler may keep the body that it
// is given, so that a run takes the memory with it. All other requests, replays above
// all, are done with it before they are answered.
type bodyBuffer struct {
	memory []byte
	more   [1]byte // where one byte too many would go
}

// fit makes room for n bytes. Memory that is much larger is left to the garbage
// collector, because a run would keep all of it.
func (b *bodyBuffer) fit(n int64) []byte {
	const slack = 512
	if c := int64(cap(b.memory)); c < n || c > 2*n+slack {
		b.memory = make([]byte, n)
	}
	return b.memory[:n:n] // what is behind it was of others
}

// giveBody hands the body to a handler, for good.
func (c *core) giveBody(in *intake) []byte {
	body := in.body
	if in.buffer != nil {
		in.buffer.memory = nil
		c.dropBody(in)
	}
	return body
}

// dropBody is called when nobody reads the body any more.
func (c *core) dropBody(in *intake) {
	if in.buffer != nil && cap(in.buffer.memory) <= maxPooledBody {
		c.bodies.Put(in.buffer)
	}
	in.buffer, in.body = nil, nil
}

// readBody reads the body into memory of its size if it is declared. A body whose
// declared length is over the limit is refused without reading a byte.
func (c *core) readBody(r *http.Request, limit int64, in *intake) error {
	if r.ContentLength > limit {
		return refused(problem.BodyTooLarge)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength >= 0 {
		in.buffer = c.bodies.Get().(*bodyBuffer)
		in.body = in.buffer.fit(r.ContentLength)
		if _, err := io.ReadFull(r.Body, in.body); err != nil {
			return bodyRefusal(err)
		}
		// A caller that is not net/http's server may send more than it declares.
		switch m, err := r.Body.Read(in.buffer.more[:]); {
		case m > 0:
			return refused(problem.BodyUnreadable)
		case err != nil && !errors.Is(err, io.EOF):
			return bodyRefusal(err)
		}
		return nil
	}
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return bodyRefusal(err)
	case n > limit:
		return refused(problem.BodyTooLarge)
	case n == 0 && formParsed(r):
		return refused(problem.BodyUnreadable)
	}
	in.body = buf.Bytes()
	return nil
}

// formParsed reports whether an outer handler has parsed a form. If there is nothing left
// of the body, what the handler reads is that form, which no fingerprint has seen.
func formParsed(r *http.Request) bool { return len(r.PostForm) > 0 || r.MultipartForm != nil }

func bodyRefusal(err error) *refusal {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return refused(problem.BodyTooLarge) // the limit of an outer handler
	}
	e := refused(problem.BodyUnreadable)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.problem.Status = http.StatusRequestTimeout
	}
	return e
}

// maxPooledBody keeps a few large bodies from pinning their memory forever.
const maxPooledBody = 2 << 20

// A bodyReader is the request body that the handler reads: the very bytes that were
// fingerprinted.
type bodyReader struct{ bytes.Reader }

func (*bodyReader) Close() error { return nil }
