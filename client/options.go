package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"example.com/idempotency/client/profile"
	"example.com/idempotency/internal/token"
)

// This file has the options of [New], their defaults and their validation.

// Defaults and limits of the options.
const (
	defaultMaxBody        = 1 << 20
	maxBodyLimit          = 1 << 30
	defaultAttempts       = 4
	defaultAttemptTimeout = 30 * time.Second
	defaultTimeout        = time.Minute
	defaultBackoff        = 100 * time.Millisecond
	defaultMaxBackoff     = 10 * time.Second
	defaultBudgetRatio    = 0.2
	defaultBudgetReserve  = 10
	defaultTTL            = 24 * time.Hour
)

// An Option changes a setting of a [Transport]; see [New]. Of two options for the same
// setting the later one counts; a nil Option changes nothing.
type Option func(*settings)

type settings struct {
	methods       []string
	strictKeys    bool
	servers       servers
	maxBody       int64
	limits        Limits
	backoff       backoff
	budgetRatio   float64
	budgetReserve int
	ttl           time.Duration
	breaker       Breaker
	observers     observers
}

func newSettings(opts []Option) (settings, error) {
	s := settings{
		methods:       []string{http.MethodPost, http.MethodPatch},
		servers:       servers{undeclared: profile.Guard()},
		maxBody:       defaultMaxBody,
		limits:        Limits{Attempts: defaultAttempts, AttemptTimeout: defaultAttemptTimeout, Timeout: defaultTimeout},
		backoff:       backoff{defaultBackoff, defaultMaxBackoff},
		budgetRatio:   defaultBudgetRatio,
		budgetReserve: defaultBudgetReserve,
		ttl:           defaultTTL,
	}
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	return s, s.validate()
}

// validate reports all mistakes at once.
func (s *settings) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("client: "+format, args...))
		}
	}
	for _, d := range s.servers.declared {
		if err := d.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, m := range s.methods {
		check(token.Is(m), "WithMethods: %q is not a method", m)
	}
	check(s.maxBody > 0 && s.maxBody <= maxBodyLimit, "WithMaxBody: %d is not between 1 and %d", s.maxBody, maxBodyLimit)
	check(s.limits.Attempts >= 1 && s.limits.Attempts <= maxAttempts, "WithAttempts: %d is not between 1 and %d", s.limits.Attempts, maxAttempts)
	check(s.limits.AttemptTimeout >= time.Millisecond, "WithAttemptTimeout: %v is shorter than a millisecond", s.limits.AttemptTimeout)
	check(s.limits.Timeout >= time.Millisecond, "WithTimeout: %v is shorter than a millisecond", s.limits.Timeout)
	check(s.backoff.first > 0 && s.backoff.first <= s.backoff.longest, "WithBackoff: %v and %v are not positive and in order", s.backoff.first, s.backoff.longest)
	check(s.budgetRatio >= 0 && s.budgetRatio <= maxAttempts, "WithRetryBudget: ratio %v is not between 0 and %d", s.budgetRatio, maxAttempts)
	check(s.budgetReserve >= 0, "WithRetryBudget: reserve %d is negative", s.budgetReserve)
	check(s.ttl >= time.Second, "WithTTL: %v is shorter than a second", s.ttl)
	return errors.Join(errs...)
}

// WithMethods sets the methods whose requests get a key. The default is POST and PATCH,
// the two that RFC 9110 section 9.2.2 does not define as idempotent. With none, only
// requests for which the caller has chosen a key have one.
func WithMethods(methods ...string) Option {
	methods = append([]string(nil), methods...)
	return func(s *settings) { s.methods = methods }
}

// WithServer says that hosts honour idempotency keys, and how they speak about them. After
// an attempt that may have been executed, a request is sent again only to such a host, or to
// a route that has shown that it honours keys: everywhere else, another attempt might be a
// second effect.
//
// A host is a name or an address, either with a port, "*.example.com" for all names below example.com, or
// "*" for all hosts. The port 443 is that of https URLs without one, and 80 that of http URLs. What no URL can
// have for its host, such as ":443", is an error. The profile is one of package profile, or one that describes another
// server, such as a copy whose KeyHeader is another field. The option may be given several times;
// the last one that names a host counts. At least one host must be given, and the profile must be
// valid. Other hosts get keys in the field Idempotency-Key.
func WithServer(server profile.Server, hosts ...string) Option {
	d := &declaration{server: server.Clone(), hosts: append([]string(nil), hosts...)}
	return func(s *settings) { s.servers.declared = append(s.servers.declared, d) }
}

// WithStrictKeys sends keys as structured-field strings, "abc" in double quotes, as
// draft-ietf-httpapi-idempotency-key-header-07 section 2.1 demands and strict servers
// require. The default is false: keys are sent bare, as most servers expect. A header field
// that the caller has set itself is sent as it is.
func WithStrictKeys(strict bool) Option {
	return func(s *settings) { s.strictKeys = strict }
}

// WithMaxBody sets how much of a body is held in memory: of a request without GetBody, so
// that it can be sent again, and of an answer of declared length, so that one that is cut
// short is asked for again. The default is 1 MiB; it must be positive, and at most 1 GiB.
// Above it the request fails with [ErrBodyTooLarge], before anything is sent, and the
// answer is handed on as it arrives.
func WithMaxBody(n int64) Option {
	return func(s *settings) { s.maxBody = n }
}

// WithAttempts sets how many attempts a request gets at most. An [http.Transport] may send one
// attempt twice: where a connection that it has used before breaks before the answer, and a
// repetition is safe.
//
// The default is 4; 1 to 100 are accepted. 1 is right above a RoundTripper that retries itself.
// An attempt that finds the request in flight is not counted, nor is one that somebody in front of the
// server answers with 408 or 499: the server is at it, or may be, and only [WithTimeout] ends the wait.
// [WithLimits] sets it for one request.
func WithAttempts(n int) Option {
	return func(s *settings) { s.limits.Attempts = n }
}

// WithAttemptTimeout sets how long an attempt may take until the header of the answer has
// arrived, and a body that is held in memory. The default is 30 seconds. Nothing else
// notices a connection that has fallen silent. Requests that are sent once in any event are
// not affected. The shortest is a millisecond.
func WithAttemptTimeout(d time.Duration) Option {
	return func(s *settings) { s.limits.AttemptTimeout = d }
}

// WithTimeout sets how long all attempts and the pauses between them may take together.
// The default is one minute; it should be longer than the lease of the server, so that a
// request survives the death of a server process. The context of a request may end it
// earlier. Requests that are sent once in any event are not affected. The shortest is a
// millisecond.
func WithTimeout(d time.Duration) Option {
	return func(s *settings) { s.limits.Timeout = d }
}

// WithBackoff sets the pauses between attempts: random, between zero and a bound that is
// first at the first retry, doubles with each further one, and does not exceed longest. The
// defaults are 100 milliseconds and 10 seconds. The time that an answer asks for with
// Retry-After is added to the pause. First must be positive, and not above longest.
func WithBackoff(first, longest time.Duration) Option {
	return func(s *settings) { s.backoff = backoff{first, longest} }
}

// WithRetryBudget bounds the retries of all requests of a [Transport] to one host, so that
// its clients do not multiply the load of a server that fails: each request allows ratio
// retries, and reserve more may be made at once. A used reserve grows by one in a second, so
// that a client with few requests may retry them. The defaults are 0.2 and 10. A ratio that
// allows all attempts of all requests sets no bound. With WithRetryBudget(0, 0) only a
// request that is found in flight is sent again. Neither may be negative.
func WithRetryBudget(ratio float64, reserve int) Option {
	return func(s *settings) { s.budgetRatio, s.budgetReserve = ratio, reserve }
}

// WithBreaker asks a circuit breaker before each attempt and tells it the result. By
// default, and with nil, there is none.
func WithBreaker(b Breaker) Option {
	return func(s *settings) { s.breaker = b }
}

// WithTTL sets how long a server surely remembers a key, where its profile does not say: not
// more than the shortest TTL of the routes that are called. The default is 24 hours, as on
// the server. A key that is older is not sent any more: to the server it would be a new one.
// The age of a key counts from when the [Transport] made it, or from the Since of an
// [Intent]. The age of any other key counts from the call that it is sent with. The shortest
// is a second.
func WithTTL(d time.Duration) Option {
	return func(s *settings) { s.ttl = d }
}

// WithObserver adds a function that is told about each attempt and each decision; see
// [Event]. It is called in the goroutine of the request, by several at once, and should
// return soon. A panic of it is logged. Nil adds nothing.
func WithObserver(f func(ctx context.Context, e Event)) Option {
	return func(s *settings) {
		if f != nil {
			s.observers.told = append(s.observers.told, f)
		}
	}
}

// WithLogger sets the logger for requests whose outcome is unknown, and for panics of an
// observer. The default, nil, is slog.Default at that time.
func WithLogger(l *slog.Logger) Option {
	return func(s *settings) { s.observers.logger = l }
}

// quoted returns the value of the header field that carries a key.
func (s *settings) quoted(key string) string {
	if !s.strictKeys || strings.HasPrefix(strings.TrimSpace(key), `"`) {
		return key
	}
	return `"` + strings.ReplaceAll(key, `\`, `\\`) + `"`
}
