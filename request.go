package idempotency

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
)

// An intake is what a guard finds out about a request before it asks the store.
// Nothing has been claimed, and nothing needs undoing, if it fails.
type intake struct {
	key, scope  string
	body        []byte
	fingerprint Fingerprint
}

// errNoKey says that a request carries no key and needs none.
var errNoKey = errors.New("idempotency: no key")

// A refusal is an error that is answered with a problem document.
type refusal struct{ problem Problem }

func (e *refusal) Error() string { return string(e.problem.Code) }

func refused(code Code) *refusal { return &refusal{newProblem(code)} }

// take reads the request up to its fingerprint. The cheap refusals come first, and the
// body is read before anything is claimed: one that drips in holds no claim.
func (g *Guard) take(r *http.Request, in *intake) error {
	var err error
	if in.scope, err = scopeOf(g.core.scope, r); err != nil {
		return refused(CodeScopeUnresolved)
	}
	if in.body, err = readBody(r, g.set.maxRequestBody); err != nil {
		return err
	}
	if g.set.keyFunc != nil {
		in.key, err = g.set.keyFunc(r, in.body)
		switch {
		case err != nil || len(in.key) > maxKeyLen:
			p := newProblem(CodeKeyInvalid)
			p.Detail = "The request does not have the form that its idempotency key is taken from."
			return &refusal{p}
		case in.key == "" && g.set.required:
			return refused(CodeKeyMissing)
		case in.key == "":
			return errNoKey
		}
	}
	if in.fingerprint, err = g.set.fingerprint(r, in.body); err != nil {
		return refused(CodeFingerprintFailed)
	}
	return nil
}

// maxKeyLen is the longest key, in bytes; longer ones do not fit the index of any of
// the systems that keys are handed on to.
const maxKeyLen = 255

// readBody reads the body into memory of exactly its size if it is declared. A body
// whose declared length is over the limit is refused without reading a byte.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, refused(CodeBodyTooLarge)
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength >= 0 {
		body := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, body)
		if err != nil {
			return nil, bodyRefusal(err)
		}
		// A caller that is not net/http's server may send more than it declares.
		var more [1]byte
		switch m, err := r.Body.Read(more[:]); {
		case m > 0:
			return nil, refused(CodeBodyUnreadable)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, bodyRefusal(err)
		}
		return body[:n], nil
	}
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, bodyRefusal(err)
	case n > limit:
		return nil, refused(CodeBodyTooLarge)
	}
	return buf.Bytes(), nil
}

func bodyRefusal(err error) *refusal {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return refused(CodeBodyTooLarge) // the limit of an outer handler
	}
	e := refused(CodeBodyUnreadable)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.problem.Status = http.StatusRequestTimeout
	}
	return e
}

// A bodyReader is the request body that the handler reads: the very bytes that were
// fingerprinted.
type bodyReader struct{ bytes.Reader }

func (*bodyReader) Close() error { return nil }
