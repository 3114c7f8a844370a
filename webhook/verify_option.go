package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A VerifyOption changes how [Verify] and [VerifyWith] check deliveries.
type VerifyOption func(*verifySettings)

// WithTolerance sets how far the time in a signature may be from now, in either direction. The
// default is 5 minutes. It does not matter for senders that sign no time.
func WithTolerance(d time.Duration) VerifyOption {
	return func(s *verifySettings) { s.tolerance = d }
}

// WithClock sets the clock that signatures are compared with. The default is [time.Now].
func WithClock(now func() time.Time) VerifyOption {
	return func(s *verifySettings) { s.now = now }
}

// WithMaxBody sets how many bytes the body of a delivery may have. The default is 1 MiB, as it
// is for a guard. Raise both if the sender needs more; see [idempotency.Limits].
func WithMaxBody(n int64) VerifyOption {
	return func(s *verifySettings) { s.maxBody = n }
}

// WithURL sets the function that returns the URL to which the sender has sent a request. Only
// [Twilio] signs it. The default is https, the Host field and the target of the request, which
// is wrong behind a proxy that changes one of them.
func WithURL(f func(*http.Request) string) VerifyOption {
	return func(s *verifySettings) { s.url = f }
}

const (
	defaultTolerance = 5 * time.Minute
	defaultMaxBody   = 1 << 20
)

// verifySettings are what the options set.
type verifySettings struct {
	tolerance time.Duration
	now       func() time.Time
	maxBody   int64
	url       func(*http.Request) string
}

// newVerifySettings refuses settings with which nothing, or anything, would be let in.
func newVerifySettings(opts []VerifyOption) (verifySettings, error) {
	s := verifySettings{tolerance: defaultTolerance, now: time.Now, maxBody: defaultMaxBody, url: urlOf}
	for _, opt := range opts {
		opt(&s)
	}
	switch {
	case s.tolerance <= 0:
		return s, fmt.Errorf("webhook: WithTolerance: %v is not positive", s.tolerance)
	case s.maxBody <= 0:
		return s, fmt.Errorf("webhook: WithMaxBody: %d is not positive", s.maxBody)
	case s.now == nil || s.url == nil:
		return s, errors.New("webhook: WithClock or WithURL without a function")
	}
	return s, nil
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
