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

	"example.com/idempotency/event"
	"example.com/idempotency/internal/token"
	"example.com/idempotency/problem"
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
	maxWait               = 5 * time.Minute
	maxLease              = 24 * time.Hour
	maxTTL                = 10 * 365 * 24 * time.Hour
	minRefusalStatus      = 400
	maxRefusalStatus      = 499
	maxRouteLen           = 64
)

// An Option changes a setting of a [Guard]; see [New] and [Guard.With]. A later option
// overrides an earlier one for the same setting, except that each [WithObserver] adds an
// observer. A nil Option changes nothing.
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
	keyFunc                        KeyFunc
	fingerprint                    FingerprintFunc
	formerFingerprints             []FingerprintFunc
	maxRequestBody, maxResponseLen int64
	waitingBytes                   int64
	dropped, drop                  []string // by WithUnrecorded; and with the guard's own field
	outcome                        func(int, http.Header) Outcome
	outcomeChosen                  bool // by WithOutcome
	silence                        Outcome
	rebinding, transaction, shadow bool
	recovery                       Recovery
	maxAttempts                    int
	route                          string
	mismatchStatus                 int
	errorWriter                    func(http.ResponseWriter, *http.Request, problem.Document)
	policyURL                      string
	expiryHeader                   string
	authorizeReplay                func(*http.Request, RecordInfo) error
	observers                      []func(context.Context, event.Event)
	logger                         *slog.Logger
	sealer                         Sealer
	namespace                      string
	secret                         []byte
	resolver                       func(context.Context, RecordInfo) (Resolution, error)
	traceContext                   func(context.Context) event.TraceContext
	explain                        bool
	keptKeys                       bool
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
		waitingBytes:   defaultWaitingBytes,
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
	s.drop = s.dropped
	if s.expiryHeader != "" {
		s.drop = append(slices.Clip(s.dropped), s.expiryHeader)
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
	check(s.waitingBytes >= minWaitingBytes && s.waitingBytes <= maxWaitingBytes,
		"WithWaitingBytes: %d is not between %d and %d", s.waitingBytes, minWaitingBytes, int64(maxWaitingBytes))
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
	for _, name := range s.dropped {
		check(token.Is(name), "WithUnrecorded: %q is not a field name", name)
	}
	check(s.outcome != nil, "WithOutcome: nil function")
	check(s.silence <= Unknown, "WithSilence: %v is not an Outcome", s.silence)
	check(s.recovery == Rerun || s.recovery == Hold, "WithRecovery: %v is neither Rerun nor Hold", s.recovery)
	check(s.maxAttempts >= 0, "WithMaxAttempts: %d is negative", s.maxAttempts)
	check(s.mismatchStatus >= minRefusalStatus && s.mismatchStatus <= maxRefusalStatus,
		"WithMismatchStatus: %d is not a 4xx status", s.mismatchStatus)
	check(s.errorWriter != nil, "WithErrorWriter: nil function")
	check(s.expiryHeader == "" || token.Is(s.expiryHeader) && s.expiryHeader != s.header && !slices.Contains(ownFields, s.expiryHeader),
		"WithExpiryHeader: %q is not a field name, or one that the guard uses for something else", s.expiryHeader)
	check(!s.keptKeys || s.sealer != nil, "WithKeptKeys: there is no sealer; see WithSealer")
	check(len(s.route) <= maxRouteLen && isLabel(s.route), "WithRoute: %q is not a label of at most %d printable bytes", s.route, maxRouteLen)
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

// wantsKey reports whether the guard has to do with a request beyond its method: it has a key, or
// needs one.
func (s *settings) wantsKey(r *http.Request) bool {
	return s.protects(r.Method) && (s.keyFunc != nil || s.required || len(r.Header[s.header]) > 0)
}

// WithTTL sets how long a recorded answer is replayed. The default is 24 hours. The TTL
// must be positive and at most ten years. When it ends the key is free again: a client
// that retries later runs the handler a second time. Choose a TTL that is longer than the
// retry window of every client.
func WithTTL(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.ttl = d })
}

// WithRetention sets how long a record without an answer is kept: claimed, released or
// held. It must be at least two leases and at most ten years. When it ends, the key is free
// and the next request runs as the first, also if the key was held: allow for the time that a
// person needs to look at it.
//
// Zero is the default. A held key, and one claimed under [Hold], has no end of its own: it is
// kept until somebody resolves or forgets it, unless WithRetention sets an end. By default,
// other records without an answer are kept for the TTL, and for at least two leases. Whatever
// the retention, a record under which nothing was done ends after two leases, and under Hold
// after 15 minutes if that is longer.
//
// If an end is set, an [event.HoldEnding] is reported before it, when a request, a
// [Guard.Lookup] or [Guard.Reconcile] meets the key.
func WithRetention(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.retention = d })
}

// WithLease sets how long a claim lasts unless it is renewed. The default is 30 seconds,
// the least is 10 milliseconds and the most 24 hours. The guard renews the lease every
// third of it, so a run of any length keeps its claim while the store can be reached.
//
// A key stays blocked for up to a lease after its process has died. A run that is cut off from
// the store has its context cancelled with [ErrLeaseLost] after just over a half to nine
// tenths of the lease, and may be overtaken after two thirds of it or later. Make the lease at
// least twice as long as the longest failover of the store that runs should survive.
func WithLease(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.lease = d })
}

// WithRequired says whether a request without a key is refused with 400 key-missing. By
// default it is not: the handler runs unprotected.
func WithRequired(on bool) Option {
	return optionFunc(func(s *settings) { s.required = on })
}

// WithMethods sets the protected methods. The default is POST and PATCH, the two that
// RFC 9110 section 9.2.2 does not define as idempotent. Requests with other methods go
// to the handler untouched. At least one method must be given. Methods are
// case-sensitive, as in HTTP.
func WithMethods(methods ...string) Option {
	methods = append([]string(nil), methods...)
	return optionFunc(func(s *settings) { s.methods = methods })
}

// WithHeader sets the name of the request header field that carries the key. The
// default is Idempotency-Key. An invalid field name is an error. With [WithKeyFunc] only
// [Guard.LookupHandler] reads the field.
func WithHeader(name string) Option {
	return optionFunc(func(s *settings) { s.header = textproto.CanonicalMIMEHeaderKey(name) })
}

// WithStrictKeys says whether keys must be structured-field strings, as
// draft-ietf-httpapi-idempotency-key-header-07 section 2.1 demands: "abc" in double
// quotes. By default the raw form that most clients send is accepted too, and both
// forms name the same key. It does not apply to keys that [WithKeyFunc] returns.
func WithStrictKeys(on bool) Option {
	return optionFunc(func(s *settings) { s.strictKeys = on })
}

// A KeyFunc returns the idempotency key of a request, or an empty string if the request
// has none; see [WithKeyFunc]. It must not change or keep the body.
type KeyFunc func(r *http.Request, body []byte) (string, error)

// WithKeyFunc sets where the key comes from, if not from the header field: the delivery
// id of a webhook, for example, or a member of a JSON body. Package webhook has functions
// for common senders. The guard calls f after it has read the body. If f returns an error
// the client gets 400 key-invalid, or 503 for [ErrTryLater], without the error's text. A key has up to 255 bytes of
// any value. Nil, the default, reads the header field.
//
// Because the key may be in the body, the guard reads the body of every request with a
// protected method, whether it has a key or not, and so [WithMaxRequestBody] limits all of
// them and the [ScopeFunc] is called for each. Answers do not echo the key.
func WithKeyFunc(f KeyFunc) Option {
	return optionFunc(func(s *settings) { s.keyFunc = f })
}

// WithFingerprint sets which parts of a request its key is bound to. The default is
// [RawFingerprint]; a nil function is an error. A record is compared with the function
// that made it if that is f, one of the former functions, RawFingerprint or
// [JSONFingerprint].
//
// To change the function without turning retries into mismatches, deploy
// WithFingerprint(old, new) everywhere, then WithFingerprint(new, old), and drop the old one
// when its records have expired.
func WithFingerprint(f FingerprintFunc, former ...FingerprintFunc) Option {
	former = append([]FingerprintFunc(nil), former...)
	return optionFunc(func(s *settings) { s.fingerprint, s.formerFingerprints = f, former })
}

// WithMaxRequestBody sets the largest request body, in bytes, that is accepted with a
// key. The default is 1 MiB. A larger one is refused with 413 before anything is
// claimed, and before a byte is read if its length is declared. The limit must be positive
// and at most 1 GiB.
func WithMaxRequestBody(n int64) Option {
	return optionFunc(func(s *settings) { s.maxRequestBody = n })
}

// WithMaxResponseBody sets the largest response, in bytes, that is kept: its body, and the
// header and trailer fields that are recorded with it. The default is 1 MiB. The client that
// caused a larger answer gets all of it. The record keeps only that it ran, with its status and
// a Location of at most 2 KiB, unless [WithUnrecorded] names that field. Duplicates get 409
// response-not-kept, never a second run. The limit must be positive and at most 1 GiB.
func WithMaxResponseBody(n int64) Option {
	return optionFunc(func(s *settings) { s.maxResponseLen = n })
}

// WithUnrecorded names further header and trailer fields that are sent with the first answer
// only, and neither recorded nor replayed. An invalid field name is an error. The default is
// none. If Location is among them, no refusal tells it either: the problem response-not-kept has
// no original_location then.
//
// Two kinds of fields are never recorded. The first describes the connection or the moment. The
// second gives rights to the client that receives it: Set-Cookie, Authorization,
// WWW-Authenticate, Authentication-Info and their like, and token fields such as X-Auth-Token,
// X-Access-Token, X-Refresh-Token, X-Api-Key and X-CSRF-Token. Name the fields of your own that
// give rights.
func WithUnrecorded(names ...string) Option {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	return optionFunc(func(s *settings) { s.dropped = canonical })
}

// WithOutcome sets how the answer of a handler is judged; see [Outcome]. The default
// is [DefaultOutcome]; a nil function is an error. The guard calls f with the status and
// header of a complete answer. It does not ask about a run that panicked or whose answer
// was cut short: that run is [Unknown]. [Operation.SetOutcome] takes precedence over f. A
// value that is not one of the three outcomes counts as Unknown. The client of an Unknown run
// is not shown a 4xx; see [Unknown].
func WithOutcome(f func(status int, h http.Header) Outcome) Option {
	return optionFunc(func(s *settings) { s.outcome, s.outcomeChosen = f, true })
}

// WithSilence sets what it means that a handler returns without a status and without a byte.
// net/http makes an empty 200 of it. More often than not, the real answer went past the guard:
// an adapter gave the framework another writer, or the handler left the answer to a goroutine.
//
// By default, and with the zero Outcome, the empty 200 is judged as any other answer, and the
// first such run of a route is an [event.Silent] and a warning in the log. But if the header of the
// writer outside shows that the handler has answered past the guard, only the fact is recorded:
// retries are refused with 409 response-not-kept, and no handler runs. [Final] says that
// the route means it, and ends the warning. With [NotExecuted] and [Unknown] nothing is
// recorded, and the guard leaves the answer to the handlers outside.
//
// If the handler writes after such a return, and the run is not judged yet, its outcome is
// Unknown, and the guard reports that too. [Operation.SetOutcome] takes precedence.
func WithSilence(o Outcome) Option {
	return optionFunc(func(s *settings) { s.silence = o })
}

// WithRebinding says whether a key may come with another payload after a run whose outcome was
// [NotExecuted], so that a client can correct a request that was refused before anything was
// done. By default the key stays bound to its first payload for as long as the record is kept,
// and another one gets 409 key-reused. A redirect that keeps the method (307, 308) never binds
// a key, because the client repeats the request at another path.
//
// It goes together with [WithOutcome] or [Operation.SetOutcome]. By default a 422 is [Final]: it
// is recorded, and the corrected request needs another key. A route that calls failed validation
// NotExecuted lets each request be validated anew, and with WithRebinding also a corrected one.
//
// A key stays bound if an earlier attempt may have had an effect for the first payload: if its
// outcome was [Unknown], if it did not end, or if a [Step] was begun.
func WithRebinding(on bool) Option {
	return optionFunc(func(s *settings) { s.rebinding = on })
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
// another format. The default writes application/problem+json (RFC 9457); a nil function
// is an error. Before the call the guard sets Cache-Control and, if a retry can help,
// Retry-After on w. The function writes the status p.Status, the Content-Type and the body.
func WithErrorWriter(f func(w http.ResponseWriter, r *http.Request, p problem.Document)) Option {
	return optionFunc(func(s *settings) { s.errorWriter = f })
}

// WithPolicyURL names the page that describes the API's rules for idempotency keys.
// The type of a problem becomes that URL with the code as fragment, and each refusal links
// to the page. The URL must be absolute and have no fragment. By default it is empty and
// the type is about:blank.
func WithPolicyURL(url string) Option {
	return optionFunc(func(s *settings) { s.policyURL = url })
}

// WithExpiryHeader names the field in which answers say for how long the key is good, in whole
// seconds: that long, a repetition meets what became of the first request. [ExpiryHeader] is a
// good name. By default it is empty, and there is no
// such field. It must not be the name of a field that the guard uses for something else.
//
// The field is in the answer of a run that is recorded before its answer is sent, in each replay,
// and in the refusals in-flight, outcome-unknown and response-not-kept, unless the record has no
// end. An answer that the handler flushes goes out before it is recorded, without the field. The
// guard neither records nor replays a field of this name that a handler has set.
func WithExpiryHeader(name string) Option {
	return optionFunc(func(s *settings) { s.expiryHeader = textproto.CanonicalMIMEHeaderKey(name) })
}

// WithFailOpen says whether the handler, or the function of [Do], runs unprotected when
// the store is unavailable or full. By default the request is refused. Failing open trades
// duplicates for availability and is right only where a duplicate is harmless. A request
// is refused all the same if the store reported a record of its key before it failed. A full store
// is asked whether it has one, if it is an [store.Inspector].
//
// An unprotected run has no [Operation] and its steps are not recorded. Its derived keys are
// those that a protected run has, so that downstream services recognise a repetition. Each
// such run is an [event.FailOpen] and an error in the log.
func WithFailOpen(on bool) Option {
	return optionFunc(func(s *settings) { s.failOpen = on })
}

// WithAuthorizeReplay sets a function that decides before each replay whether this
// request may see the recorded answer: its caller may have lost a right since the answer
// was made. If it returns an error the client gets 403 replay-denied, or 503 for
// [ErrTryLater], without the error's text. The body of r has been read, so the function cannot parse a form. Nil, the default,
// replays to everyone in the scope.
func WithAuthorizeReplay(f func(r *http.Request, rec RecordInfo) error) Option {
	return optionFunc(func(s *settings) { s.authorizeReplay = f })
}

// WithExplain says whether a client that has used its key for another request is told in
// which parts the two differ: in the member "differs" of the problem document, by the names of
// [event.RequestParts]. Values are never shown. It is the hint of [event.Event].Differs, with the same limits:
// the body counts byte for byte, whatever the [FingerprintFunc] counts, so another order of members
// may be named beside the part that makes the mismatch. By default only the event tells.
func WithExplain(on bool) Option {
	return optionFunc(func(s *settings) { s.explain = on })
}

// WithClientCancel says whether a client that hangs up cancels the context of its run. By
// default it does not: the run goes on, and the client finds the answer on its next try.
// If it does, a client that has hung up before its key is claimed gets no run. A run that has seen
// the end of its context and answers with an error status has an [Unknown] outcome, unless it says
// otherwise with [Operation.SetOutcome].
func WithClientCancel(on bool) Option {
	return optionFunc(func(s *settings) { s.clientCancel = on })
}

// WithSealer sets what encrypts answers and the values of steps before they reach the
// store. Nil, the default, stores them as they are.
//
// A guard with a sealer accepts only sealed records. When a service that ran without a
// sealer gets one, keys that were completed before are answered with 503
// store-unavailable until their TTL ends. Another prefix for the records ([WithPrefix])
// avoids that, but a request that is retried across the change runs again.
func WithSealer(sealer Sealer) Option {
	return optionFunc(func(s *settings) {
		s.sealer = nil
		if sealer != nil {
			s.sealer = calmSealer{sealer}
		}
	})
}

// WithKeptKeys says whether the scope and the key of each record are kept beside it, sealed by
// [WithSealer], without which it is an error. By default nobody gets from a record back to its
// key. With it, [Guard.Lookup] by the name of a record tells its Key, its ID and its derived keys
// to a process that has the sealing key, and [Guard.Reconcile] can ask the route's resolver.
//
// In Redis that takes about 280 bytes more for a record without an answer, and 130 for one with an
// answer. A key that takes more than 1,024 bytes when it is sealed with its scope is not kept. If
// the sealer fails or panics, the request is refused with 503 store-unavailable before it runs, because its
// answer could not be sealed either.
func WithKeptKeys(on bool) Option {
	return optionFunc(func(s *settings) { s.keptKeys = on })
}

// WithDerivation sets what [Operation.ID] and [DeriveKey] are derived from besides scope, key
// and request. By default that is nothing, and both arguments may be zero. Two services that
// share a downstream account and could see the same scope and key need different namespaces.
// With a secret, a caller who knows a key cannot compute what is derived from it. The secret
// is copied. To change either is to change all derived keys: a retry across the change is
// a new effect for downstream services.
func WithDerivation(namespace string, secret []byte) Option {
	if secret != nil {
		secret = append([]byte{}, secret...)
	}
	return optionFunc(func(s *settings) { s.namespace, s.secret = namespace, secret })
}

// WithResolver sets a function that finds out what became of a run whose outcome is
// unknown, by asking the system that the run had its effect on. The guard calls it when a
// request meets a held key, with the request's context, or when [Guard.Reconcile] does. In one process it is called for one
// request at a time for each key; the others get 409 outcome-unknown meanwhile. The guard
// settles the key with the returned [Resolution], as [Guard.Resolve] would for this
// attempt, and the request goes on from there to a replay or to a run. An [Unknown]
// resolution leaves the key held. So does an error, which is logged. The function should bound
// its own time: [Guard.Shutdown] waits for it as for a run.
//
// It needs a store that is an [store.Inspector]: [New] and [Guard.With] refuse any other. Nil,
// the default, leaves held keys to [Guard.Resolve] and [Guard.Forget].
func WithResolver(f func(ctx context.Context, rec RecordInfo) (Resolution, error)) Option {
	return optionFunc(func(s *settings) { s.resolver = f })
}
