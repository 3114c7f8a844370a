package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"example.com/idempotency/internal/reread"
	"example.com/idempotency/internal/reserved"
)

// The middleware that stands before a guard: it reads a delivery, lets it in or refuses it, and puts
// the body back.

// A verification is what Verify does for one endpoint.
type verification struct {
	sender Sender
	check  func(*http.Request, []byte) error
	keys   []key // for checkSignature
	set    verifySettings
}

// Verify returns a middleware that lets in what the sender has signed with one of the secrets.
// More than one secret serves rotation: keep the old one until the sender has stopped to use it.
//
// Put it around the guard. It refuses a delivery before a key is claimed: with 401 if it is not
// signed, or if its signature is wrong or too old, with 400 if it is malformed, with 413 if it is too
// large, and with 405 if it came by another method than the sender's. It puts the body back, so the
// guard and the handler read the bytes that were verified. [Scope] tells the guard whose delivery it
// is.
//
// Verify returns an error if there is no secret, if one is empty or malformed, or if the
// signature of this sender needs more than a secret; see [VerifyWith].
func Verify(s Sender, secrets []string, opts ...VerifyOption) (func(http.Handler) http.Handler, error) {
	if s.signing == nil {
		return nil, fmt.Errorf("webhook: a secret does not verify deliveries of %q; use VerifyWith", s.Name)
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("webhook: no secret for %q", s.Name)
	}
	v := &verification{sender: s}
	v.check = v.checkSignature
	for i, secret := range secrets {
		k, err := s.signing.makeKey(secret)
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d of %q: %w", i+1, s.Name, err)
		}
		v.keys = append(v.keys, k)
	}
	return v.middleware(opts)
}

// VerifyWith is [Verify] for senders whose signature this package cannot check, with a function
// that can: one that asks the sender, or that knows its certificate. The body is what the
// handler will read. The function must not change or keep it. The request is a copy that has the body, so the function may
// parse a form.
//
// If the function returns an error the delivery is refused with 401, or with 503 if the error
// wraps [idempotency.ErrTryLater]: then the sender delivers it again. The sender does not see
// the text of the error.
func VerifyWith(s Sender, check func(r *http.Request, body []byte) error, opts ...VerifyOption) (func(http.Handler) http.Handler, error) {
	if check == nil {
		return nil, fmt.Errorf("webhook: no function to verify %q with", s.Name)
	}
	v := &verification{sender: s, check: check}
	return v.middleware(opts)
}

func (v *verification) middleware(opts []VerifyOption) (func(http.Handler) http.Handler, error) {
	if v.sender.Name == "" {
		return nil, errors.New("webhook: a sender without a Name")
	}
	var err error
	if v.set, err = newVerifySettings(opts); err != nil {
		return nil, err
	}
	methods := v.sender.methods()
	allow := strings.Join(methods, ", ")
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !slices.Contains(methods, r.Method) {
				w.Header().Set("Allow", allow)
				refuse(w, &refusal{http.StatusMethodNotAllowed, "The sender does not deliver by this method."})
				return
			}
			body, err := v.read(w, r)
			if err == nil {
				err = reread.Ask(v.check, r, body)
			}
			if err != nil {
				refuse(w, err)
				return
			}
			in := v.letIn(r, body)
			defer func() { reread.RemoveForm(in, r) }()
			next.ServeHTTP(w, in)
		})
	}, nil
}

// checkSignature lets in what one of the keys has signed not long ago. It looks at the time last,
// so only the sender itself learns that its delivery was late.
func (v *verification) checkSignature(r *http.Request, body []byte) error {
	s, err := v.sender.signing.read(r, body, v.set.url(r))
	switch {
	case err != nil:
		return err
	case len(s.sums) > maxSums:
		return malformed("The delivery has too many signatures.")
	case !v.signed(s):
		return unsigned("No signature is one of this delivery with a secret of this endpoint.")
	case s.at.IsZero():
		return nil
	}
	if age := v.set.now().Sub(s.at); age > v.set.tolerance || age < -v.set.tolerance {
		return unsigned("The signature is too old, or from the future.")
	}
	return nil
}

func (v *verification) signed(s *signature) bool {
	for _, k := range v.keys {
		for _, content := range s.contents {
			if k.signed(content, s.sums) {
				return true
			}
		}
	}
	return false
}

// read reads the body. Its errors are refusals.
func (v *verification) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil { // of a request that no server has read
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, v.set.maxBody))
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &refusal{http.StatusRequestEntityTooLarge, "The body is larger than this endpoint accepts."}
	}
	return nil, malformed("The body did not arrive completely.")
}

// letIn returns the request as the next handler gets it.
func (v *verification) letIn(r *http.Request, body []byte) *http.Request {
	r = r.WithContext(reserved.With(r.Context(), scopeOf(v.sender.Name)))
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	return r
}
