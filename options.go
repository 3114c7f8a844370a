package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"example.com/idempotency/internal/token"
)

// Defaults and limits of the options.
const (
	defaultTTL            = 24 * time.Hour
	defaultLease          = 30 * time.Second
	defaultHeader         = "Idempotency-Key"
	defaultMaxBody        = 1 << 20
	minLease              = 10 * time.Millisecond
	maxBodyLimit          = 1 << 30
	minRetentionInLeases  = 2
	defaultMismatchStatus = http.StatusConflict
	replayedHeader        = "Idempotent-Replayed"
	maxWait               = 5 * time.Minute
	maxLease              = 24 * time.Hour
	maxTTL                = 10 * 365 * 24 * time.Hour
	minRefusalStatus      = 400
	maxRefusalStatus      = 499
)

// An Option changes a setting of a [Guard]; see [New] and [Guard.With]. Of two
// options for the same setting the later one counts; a nil Option changes nothing.
type Option interface {
	apply(*settings)
}

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

type settings struct {
	ttl, lease, retention, wait    time.Duration
	required, strictKeys           bool
	failOpen, clientCancel         bool
	methods                        []string
	header                         string
	keyFunc                        func(*http.Request, []byte) (string, error)
	fingerprint                    FingerprintFunc
	formerFingerprints             []FingerprintFunc
	maxRequestBody, maxResponseLen int64
	outcome                        func(int, http.Header) Outcome
	recovery                       Recovery
	mismatchStatus                 int
	errorWriter                    func(http.ResponseWriter, *http.Request, Problem)
	policyURL                      string
	authorizeReplay                func(*http.Request, ReplayInfo) error
	observer                       func(context.Context, Event)
	logger                         *slog.Logger
	sealer                         Sealer
	cacheBytes                     int64
	cache                          *replayCache
	resolver                       func(context.Context, *HeldOperation) (Resolution, error)
}

func defaultSettings() settings {
	return settings{
		ttl:            defaultTTL,
		lease:          defaultLease,
		methods:        []string{http.MethodPost, http.MethodPatch},
		header:         defaultHeader,
		fingerprint:    RawFingerprint,
		maxRequestBody: defaultMaxBody,
		maxResponseLen: defaultMaxBody,
		outcome:        DefaultOutcome,
		mismatchStatus: defaultMismatchStatus,
		errorWriter:    writeProblem,
	}
}

// with returns a copy with the options applied and checked. All mistakes are
// reported at once.
func (s settings) with(opts []Option) (settings, error) {
	for _, o := range opts {
		if o != nil {
			o.apply(&s)
		}
	}
	return s, s.validate()
}

func (s *settings) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("idempotency: "+format, args...))
		}
	}
	check(s.ttl > 0 && s.ttl <= maxTTL, "WithTTL: %v is not positive and at most %v", s.ttl, maxTTL)
	check(s.lease >= minLease && s.lease <= maxLease, "WithLease: %v is not between %v and %v", s.lease, minLease, maxLease)
	check(s.retention == 0 || s.retention >= minRetentionInLeases*s.lease && s.retention <= maxTTL,
		"WithRetention: %v is not at least twice the lease %v and at most %v", s.retention, s.lease, maxTTL)
	check(s.wait >= 0 && s.wait <= maxWait, "WithWait: %v is not between 0 and %v", s.wait, maxWait)
	check(len(s.methods) > 0, "WithMethods: no method")
	for _, m := range s.methods {
		check(token.Is(m), "WithMethods: %q is not a method", m)
	}
	check(token.Is(s.header), "WithHeader: %q is not a field name", s.header)
	check(s.fingerprint != nil, "WithFingerprint: nil function")
	for _, f := range s.formerFingerprints {
		check(f != nil, "WithFingerprint: nil function")
	}
	check(s.maxRequestBody > 0 && s.maxRequestBody <= maxBodyLimit,
		"WithMaxRequestBody: %d is not between 1 and %d", s.maxRequestBody, maxBodyLimit)
	check(s.maxResponseLen > 0 && s.maxResponseLen <= maxBodyLimit,
		"WithMaxResponseBody: %d is not between 1 and %d", s.maxResponseLen, maxBodyLimit)
	check(s.cacheBytes >= 0, "WithReplayCache: %d is negative", s.cacheBytes)
	check(s.outcome != nil, "WithOutcome: nil function")
	check(s.recovery == Rerun || s.recovery == Hold, "WithRecovery: %d is no policy", s.recovery)
	check(s.mismatchStatus >= minRefusalStatus && s.mismatchStatus <= maxRefusalStatus,
		"WithMismatchStatus: %d is not a 4xx status", s.mismatchStatus)
	check(s.errorWriter != nil, "WithErrorWriter: nil function")
	if s.policyURL != "" {
		u, err := url.Parse(s.policyURL)
		check(err == nil && u.IsAbs() && u.Fragment == "", "WithPolicyURL: %q is not an absolute URL without fragment", s.policyURL)
	}
	return errors.Join(errs...)
}

// retentionOrDefault is how long a record without an answer is kept. The default
// follows the TTL, because a key that is worth replaying for a day is worth
// protecting for a day, but it never lets the record vanish together with its lease:
// what is gone cannot be seen as attempt 2 or be held.
func (s *settings) retentionOrDefault() time.Duration {
	if s.retention > 0 {
		return s.retention
	}
	return max(s.ttl, minRetentionInLeases*s.lease)
}

func (s *settings) protects(method string) bool {
	return slices.Contains(s.methods, method)
}

// WithTTL sets how long a recorded answer is replayed. The default is 24 hours. It
// must be positive, and at most ten years. After it the key is free again: a client that
// retries later than that runs the handler a second time, so it should be longer than
// any client's retry window.
func WithTTL(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.ttl = d })
}

// WithRetention sets how long a record without an answer is kept: claimed, released
// or held. The default, also for zero, is the TTL, and at least twice the lease;
// another value must be at least twice the lease and at most ten years. A held record
// that is not resolved within its retention is forgotten, and its key runs again: choose
// it by how fast somebody looks.
func WithRetention(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.retention = d })
}

// WithLease sets how long a claim lasts without being renewed. The default is 30
// seconds; 10 milliseconds is the least, and 24 hours the most. A run of any length keeps its claim, because
// the lease is renewed every third of it; the lease is how long a key stays blocked
// after its process died, and how long a run may be cut off from the store before its
// context is cancelled with [ErrLeaseLost].
func WithLease(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.lease = d })
}

// WithWait lets a duplicate of a request in flight wait up to d for the answer and
// then replay it. The default, zero, answers 409 at once. Waiting requests hold their
// connections; at most 5 minutes are accepted, and a few seconds are sensible. In one
// process at most 1,024 requests wait for a key, and 4,096 for all keys together; those
// above get 409 at once, as without waiting.
func WithWait(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.wait = d })
}

// WithRequired refuses requests without a key with 400 key-missing. By default they
// go to the handler unprotected.
func WithRequired() Option {
	return optionFunc(func(s *settings) { s.required = true })
}

// WithMethods sets the protected methods. The default is POST and PATCH, the two that
// RFC 9110 section 9.2.2 does not define as idempotent. Requests with other methods go
// to the handler untouched. At least one must be given; as in HTTP, POST and post are
// two methods.
func WithMethods(methods ...string) Option {
	methods = append([]string(nil), methods...)
	return optionFunc(func(s *settings) { s.methods = methods })
}

// WithHeader sets the name of the request header field that carries the key. The
// default is Idempotency-Key. What is no field name, the empty one for example, is an
// error. Under [WithKeyFunc] the field counts for [Guard.LookupHandler] only.
func WithHeader(name string) Option {
	return optionFunc(func(s *settings) { s.header = textproto.CanonicalMIMEHeaderKey(name) })
}

// WithStrictKeys accepts only keys in the form of a structured-field string, as
// draft-ietf-httpapi-idempotency-key-header-07 section 2.1 demands: "abc" in double
// quotes. By default the raw form that most clients send is accepted too, and both
// forms name the same key. It says nothing about keys of [WithKeyFunc].
func WithStrictKeys() Option {
	return optionFunc(func(s *settings) { s.strictKeys = true })
}

// WithKeyFunc takes the key from elsewhere than the header field: the delivery id of
// a webhook, a field of the body. It is called after the body has been read, with the
// request and its body, which it must not change or keep. An empty key means that the
// request has none; an error is answered with 400 key-invalid and its text is not shown.
// The key may have up to 255 bytes of any kind. Nil, the default, reads the header.
//
// Since a key may be in the body, the body of each request with a protected method is
// read, and limited by [WithMaxRequestBody], whether it turns out to have a key or not,
// and the [ScopeFunc] is asked about each. Answers do not repeat the key.
func WithKeyFunc(f func(r *http.Request, body []byte) (string, error)) Option {
	return optionFunc(func(s *settings) { s.keyFunc = f })
}

// WithFingerprint sets what of a request its key is bound to. The default is
// [RawFingerprint]. Records that were made with one of the former functions, or with
// RawFingerprint or [JSONFingerprint], are compared with the function they were made
// with, so that a deployment that changes the function does not turn retries into
// mismatches: name the previous one for as long as its records live. A nil function is
// an error.
func WithFingerprint(f FingerprintFunc, former ...FingerprintFunc) Option {
	former = append([]FingerprintFunc(nil), former...)
	return optionFunc(func(s *settings) { s.fingerprint, s.formerFingerprints = f, former })
}

// WithMaxRequestBody sets the largest request body, in bytes, that is accepted with a
// key. The default is 1 MiB. A larger one is refused with 413 before anything is
// claimed, and before a byte is read if its length is declared. It must be positive, and
// at most 1 GiB.
func WithMaxRequestBody(n int64) Option {
	return optionFunc(func(s *settings) { s.maxRequestBody = n })
}

// WithMaxResponseBody sets the largest response body, in bytes, that is kept. The
// default is 1 MiB. A larger answer is sent in full to the client that caused it, and
// recorded without its body: duplicates get 409 response-not-kept, never a second run.
// It must be positive, and at most 1 GiB.
func WithMaxResponseBody(n int64) Option {
	return optionFunc(func(s *settings) { s.maxResponseLen = n })
}

// WithReplayCache lets the guard, and those made from it by [Guard.With], answer replays
// from up to maxBytes bytes of this process's memory, without asking the store. A
// recorded answer never changes, so that is what the store would say, for as long as the
// record lives; from the cache it is replayed for at most a minute after the store was
// last asked, and never longer than the record's TTL. That minute is also how long a key
// that [Guard.Forget] of another process or guard has removed, or that the store has
// lost, may still answer as before. The default is zero: no cache. It does not pay in
// front of a [MemoryStore].
func WithReplayCache(maxBytes int64) Option {
	return optionFunc(func(s *settings) { s.cacheBytes, s.cache = maxBytes, newReplayCache(maxBytes) })
}

// WithOutcome sets how the answer of a handler is judged; see [Outcome]. The default
// is [DefaultOutcome]. It is called with the status and the header of a complete
// answer; a run that panicked, or whose answer was cut short, is [Unknown] without
// asking. [Operation.SetOutcome] takes precedence. A result that is no Outcome counts
// as Unknown. A nil function is an error.
func WithOutcome(f func(status int, h http.Header) Outcome) Option {
	return optionFunc(func(s *settings) { s.outcome = f })
}

// WithRecovery sets what happens to a key whose run ended with [Unknown] outcome. The
// default is [Rerun].
func WithRecovery(r Recovery) Option {
	return optionFunc(func(s *settings) { s.recovery = r })
}

// WithMismatchStatus sets the status for a key that was used with another payload. The
// default is 409; draft-ietf-httpapi-idempotency-key-header-07 section 2.7 says 422, and
// some APIs answer 400. It must be a 4xx status.
func WithMismatchStatus(status int) Option {
	return optionFunc(func(s *settings) { s.mismatchStatus = status })
}

// WithErrorWriter sets the function that writes refusals, for APIs whose errors have
// another form. The default writes application/problem+json (RFC 9457). When it is
// called, Cache-Control and, where a retry makes sense, Retry-After are set on w; it
// writes the status p.Status, the Content-Type and the body. A nil function is an error.
func WithErrorWriter(f func(w http.ResponseWriter, r *http.Request, p Problem)) Option {
	return optionFunc(func(s *settings) { s.errorWriter = f })
}

// WithPolicyURL names the page that describes the API's rules for idempotency keys.
// Problem types become that URL with the code as fragment, and refusals link to it. It
// must be absolute and without a fragment; the default, empty, makes the type
// about:blank.
func WithPolicyURL(url string) Option {
	return optionFunc(func(s *settings) { s.policyURL = url })
}

// WithFailOpen runs the handler, or the function of [Do], unprotected when the store is
// unavailable or full, instead of refusing; not if the store has told of a record of the
// key before it failed. It trades duplicates for availability and is right only where a
// duplicate is harmless. Such a run has no [Operation], so that its
// steps are not recorded and its derived keys are random. Each is an [EventFailOpen] and
// an error in the log.
func WithFailOpen() Option {
	return optionFunc(func(s *settings) { s.failOpen = true })
}

// WithAuthorizeReplay sets a function that is asked before each replay whether this
// request may see the recorded answer: its caller may have lost a right since the
// answer was made. An error is answered with 403 replay-denied and its text is not
// shown. The body of r has been read: what the decision needs of it, the form for example,
// is not there any more. Nil, the default, replays to everyone in the scope.
func WithAuthorizeReplay(f func(r *http.Request, info ReplayInfo) error) Option {
	return optionFunc(func(s *settings) { s.authorizeReplay = f })
}

// WithObserver sets a function that is told each [Event], for metrics and tracing. It
// is called synchronously, possibly from several goroutines, and must not block. If it
// panics, that is an error in the log and changes nothing for the request. Nil, the
// default, observes nothing.
func WithObserver(f func(context.Context, Event)) Option {
	return optionFunc(func(s *settings) { s.observer = f })
}

// WithLogger sets the logger for what calls for an operator's attention: failed store
// calls, lost leases, answers that could not be recorded. Nil, the default, means
// slog.Default at the time of the event.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(s *settings) { s.logger = l })
}

// WithClientCancel lets a client that hangs up cancel the run's context. By default a
// run outlives its client, who must find the answer on its next try. A client that has
// hung up by the time its key is claimed gets no run.
func WithClientCancel() Option {
	return optionFunc(func(s *settings) { s.clientCancel = true })
}

// WithSealer sets what encrypts answers and the values of steps before they reach the
// store. Nil, the default, stores them as they are.
//
// A guard with a sealer takes nothing that is not sealed. On a service that has run
// without one, completed keys of before are answered with 500 answer-unreadable until
// their TTL is over. Another prefix for the records ([WithPrefix]) avoids that, and runs
// again what is retried across the change.
func WithSealer(sealer Sealer) Option {
	return optionFunc(func(s *settings) { s.sealer = sealer })
}
