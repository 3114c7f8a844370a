package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// This file has the middleware that stands before a guard: it reads a delivery, lets it in or
// refuses it, and puts the body back. The signatures themselves are in signature.go.

// A VerifyOption changes how [Verify] and [VerifyWith] check deliveries.
type VerifyOption func(*verification)

// WithTolerance sets how far the time in a signature may be from now, in either direction. The
// default is 5 minutes. It does not matter for senders that sign no time.
func WithTolerance(d time.Duration) VerifyOption {
	return func(v *verification) { v.tolerance = d }
}

// WithClock sets the clock that signatures are compared with. The default is [time.Now].
func WithClock(now func() time.Time) VerifyOption {
	return func(v *verification) { v.now = now }
}

// WithMaxBody sets how many bytes the body of a delivery may have. The default is 1 MiB, as it
// is for a guard. Raise both if the sender needs more; see [idempotency.WithMaxRequestBody].
func WithMaxBody(n int64) VerifyOption {
	return func(v *verification) { v.maxBody = n }
}

// WithURL sets the function that returns the URL to which the sender has sent a request. Only
// [Twilio] signs it. The default is https, the Host field and the target of the request, which
// is wrong behind a proxy that changes one of them.
func WithURL(f func(*http.Request) string) VerifyOption {
	return func(v *verification) { v.url = f }
}

const (
	defaultTolerance = 5 * time.Minute
	defaultMaxBody   = 1 << 20
)

// A verification is what Verify does for one endpoint.
type verification struct {
	sender    Sender
	keys      []key
	check     func(*http.Request, []byte) error
	tolerance time.Duration
	now       func() time.Time
	maxBody   int64
	url       func(*http.Request) string
}

// Verify returns a middleware that lets in what the sender has signed with one of the secrets.
// More than one secret serves rotation: keep the old one until the sender has stopped to use it.
//
// Put it around the guard. It refuses a delivery before a key is claimed: with 401 if it is not
// signed, or if its signature is wrong or too old, with 400 if it is malformed, with 413 if it is too
// large, and with 405 if it came by another method than the sender's. It puts the body back, so the guard and the handler read the bytes that were
// verified. [Scope] tells the guard whose delivery it is.
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
	v := newVerification(s, opts)
	v.check = v.checkSignature
	for i, secret := range secrets {
		k, err := s.signing.makeKey(secret)
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d of %q: %w", i+1, s.Name, err)
		}
		v.keys = append(v.keys, k)
	}
	return v.middleware()
}

// VerifyWith is [Verify] for senders whose signature this package cannot check, with a function
// that can: one that asks the sender, or that knows its certificate. The body is what the
// handler will read. The function must not change or keep it.
//
// If the function returns an error the delivery is refused with 401, or with 503 if the error
// wraps [idempotency.ErrTryLater]: then the sender delivers it again. The sender does not see
// the text of the error.
func VerifyWith(s Sender, check func(r *http.Request, body []byte) error, opts ...VerifyOption) (func(http.Handler) http.Handler, error) {
	if check == nil {
		return nil, fmt.Errorf("webhook: no function to verify %q with", s.Name)
	}
	v := newVerification(s, opts)
	v.check = check
	return v.middleware()
}

func newVerification(s Sender, opts []VerifyOption) *verification {
	v := &verification{sender: s, tolerance: defaultTolerance, now: time.Now, maxBody: defaultMaxBody, url: urlOf}
	for _, opt := range opts {
		opt(v)
	}
	return v
}

// middleware refuses settings with which nothing, or anything, would be let in.
func (v *verification) middleware() (func(http.Handler) http.Handler, error) {
	switch {
	case v.sender.Name == "":
		return nil, errors.New("webhook: a sender without a Name")
	case v.tolerance <= 0:
		return nil, fmt.Errorf("webhook: WithTolerance: %v is not positive", v.tolerance)
	case v.maxBody <= 0:
		return nil, fmt.Errorf("webhook: WithMaxBody: %d is not positive", v.maxBody)
	case v.now == nil || v.url == nil:
		return nil, errors.New("webhook: WithClock or WithURL without a function")
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
				err = v.check(r, body)
			}
			if err != nil {
				refuse(w, err)
				return
			}
			next.ServeHTTP(w, v.letIn(r, body))
		})
	}, nil
}

// read reads the body. Its errors are refusals.
func (v *verification) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil { // of a request that no server has read
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, v.maxBody))
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
	r = r.WithContext(context.WithValue(r.Context(), verifiedSender{}, v.sender.Name))
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	return r
}

// A refusal is why a delivery is not let in. It is written for the developer who looks at the
// failed deliveries on the sender's pages.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return "webhook: " + r.detail }

func unsigned(detail string) error  { return &refusal{http.StatusUnauthorized, detail} }
func malformed(detail string) error { return &refusal{http.StatusBadRequest, detail} }

// tryLaterSeconds is the Retry-After of a delivery that could not be verified now.
const tryLaterSeconds = 30

// refuse answers with a problem document. It has no code of package problem: those are of
// guards, and this is in front of one.
func refuse(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*refusal](err)
	switch {
	case ok:
	case errors.Is(err, idempotency.ErrTryLater):
		p = &refusal{http.StatusServiceUnavailable, "The delivery cannot be verified now."}
		w.Header().Set("Retry-After", strconv.Itoa(tryLaterSeconds))
	default:
		p = &refusal{http.StatusUnauthorized, "The delivery was not verified."}
	}
	if p.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Webhook") // RFC 9110 wants one, and none is registered
	}
	document, _ := json.Marshal(map[string]any{ // of strings and a number
		"type": "about:blank", "title": http.StatusText(p.status), "status": p.status, "detail": p.detail,
	})
	w.Header().Set("Content-Type", problem.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.status)
	_, _ = w.Write(document)
}

// urlOf is the URL of a request if no proxy has changed it. The target of a request to a proxy is a
// whole URL, and so is that of a test.
func urlOf(r *http.Request) string {
	target := r.RequestURI
	if _, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' {
		target = rest[min(strings.IndexAny(rest+"/", "/?"), len(rest)):]
	}
	return "https://" + r.Host + target
}
