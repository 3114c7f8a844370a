package idempotency

import (
	"cmp"
	"context"
	"net/http"
	"net/textproto"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/hook"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// An Option changes a setting of a [Guard]; see [New] and [Guard.With]. A later option
// overrides an earlier one for the same setting, except that each [WithObserver] adds an
// observer. A nil Option changes nothing. Package adapter has two more, for modules that trace and measure.
type Option interface {
	// Apply is called by New and Guard.With.
	Apply(hook.Options)
}

type optionFunc func(*settings)

func (f optionFunc) Apply(o hook.Options) {
	if s, ok := o.(*settings); ok {
		f(s)
	}
}

// TraceBy is for package adapter.
func (s *settings) TraceBy(f func(context.Context) event.TraceContext) { s.rules.Trace = f }

// TellCalls is for package adapter.
func (s *settings) TellCalls(f func(context.Context, string, time.Duration)) { s.rules.Calls = f }

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
//
// In an answer, the field of this name is the guard's: it repeats the key as it came. One that a handler
// sets, for example because a service behind it echoes another key, is neither sent nor recorded.
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

// WithKeyFunc sets where the key comes from, if not from the header field: the delivery
// id of a webhook, for example, or a member of a JSON body. Package webhook has functions
// for common senders. The guard calls f after it has read the body. If f returns an error
// the client gets 400 key-invalid, or 503 for [ErrTryLater], without the error's text. A key has up to 255 bytes of
// any value. Nil, the default, reads the header field.
//
// Because the key may be in the body, the guard reads the body of every request with a
// protected method, whether it has a key or not, and so [Limits].RequestBody limits all of
// them and the [ScopeFunc] is called for each. Answers do not echo the key.
func WithKeyFunc(f KeyFunc) Option {
	return optionFunc(func(s *settings) { s.keyFunc = f })
}

// WithReference sets what a record can be found by besides its key: an order number, for example, for an operator who
// is asked whether order 77 went through; see [Guard.Find]. The guard calls f once for each request with a key, with a
// copy of it that has the body, so f may parse a form. An empty string is none, and so is the default, nil. Only a digest of the reference is stored, so it
// may have any length; with a secret ([WithDerivation]) who reads the store cannot guess it.
//
// The reference is not a part of the key: two tenants with an order 77 are both found. A record has the reference of
// its last run that had one. The record must exist for the answer to be yes: see [WithTTL]. In Redis, a record takes
// about 250 bytes more. The store must be a [store.Finder] that keeps tags, or [New] and [Guard.With] refuse it.
func WithReference(f func(r *http.Request, body []byte) string) Option {
	return optionFunc(func(s *settings) { s.reference = f })
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

// Limits are how much a guard takes in and keeps; see [WithLimits]. They are in bytes. A field that is zero
// leaves that limit as it is: the default in [New], and in [Guard.With] that of the guard it is called on.
type Limits struct {
	// RequestBody is the largest request body that is accepted with a key: 1 MiB by default, and at most
	// 1 GiB. A larger one is refused with 413 before anything is claimed, and before a byte is read if its
	// length is declared.
	RequestBody int64
	// ResponseBody is the largest response body, or value of [Do], that is kept: 1 MiB by default, and at
	// most 1 GiB. The header and trailer fields that are recorded with it do not count. They may have 64 KiB
	// together, with 32 bytes for each field beside its name and value, as RFC 9113 section 6.5.2 counts
	// them. The client that caused a larger answer gets all of it. The record keeps only that it ran, with
	// its status and a Location of at most 2 KiB, unless [WithUnrecorded] names that field. Duplicates get
	// 409 response-not-kept, never a second run.
	ResponseBody int64
	// WaitingBytes is how much memory the requests of a process that wait may take together; see
	// [WithWait]. It is 64 MiB by default, at least 64 KiB and at most 1 TiB. A request that waits counts
	// 16 KiB for its goroutine and what net/http keeps of it, and what its target, its header and its body
	// have beyond 4 KiB together. A field of the header counts 128 bytes besides its name, and each of its
	// values 32 besides itself. A call of [Do] counts its payload like a body. So 4,096 short requests wait
	// by default. The requests with one key get a quarter, and those of one scope a half, but those of
	// [SharedScope] all.
	//
	// Guards that [Guard.With] makes from one share the room of that guard. Set it in New: With refuses
	// another value.
	WaitingBytes int64
}

// WithLimits sets the limits that are not zero in l. By default a request body and a response body have up
// to 1 MiB each, and the requests that wait 64 MiB together. A limit that is negative or out of the bounds
// that [Limits] gives for it is an error.
func WithLimits(l Limits) Option {
	return optionFunc(func(s *settings) {
		s.maxRequestBody = cmp.Or(l.RequestBody, s.maxRequestBody)
		s.rules.MaxAnswer = cmp.Or(l.ResponseBody, s.rules.MaxAnswer)
		s.waitingBytes = cmp.Or(l.WaitingBytes, s.waitingBytes)
	})
}

// WithUnrecorded names further header and trailer fields that are sent with the first answer
// only, and neither recorded nor replayed. An invalid field name is an error, and so is
// Content-Encoding, without which a replay would be another answer. The default is none. If Location
// is among them, no refusal tells it either: the problem response-not-kept has no original_location then.
//
// Two kinds of fields are never recorded. The first describes the connection or the moment. The
// second gives rights to the client that receives it: Set-Cookie, Authorization,
// WWW-Authenticate, Authentication-Info and their like, and all whose names end as those of credentials
// do, in any case: token, secret, password, jwt, apikey, api-key, access-key, session, sessionid and
// session-id. Name the fields of your own that give rights.
func WithUnrecorded(names ...string) Option {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = textproto.CanonicalMIMEHeaderKey(name)
	}
	return optionFunc(func(s *settings) { s.unrecorded = canonical })
}

// WithOutcome sets how the answer of a handler is judged; see [Outcome]. The default
// is [DefaultOutcome]; a nil function is an error. The guard calls f with the status and
// header of a complete answer. It does not ask about a run that panicked or whose answer
// was cut short: that run is [Unknown]. [Operation.SetOutcome] takes precedence over f. A
// value that is not one of the three outcomes counts as Unknown. The client of an Unknown run
// is not shown a 4xx; see [Unknown].
func WithOutcome(f func(status int, h http.Header) Outcome) Option {
	return optionFunc(func(s *settings) { s.outcome, s.rules.OutcomeChosen = f, true })
}

// WithSilence sets what it means that a handler returns without a status and without a byte.
// net/http makes an empty 200 of it. More often than not, the real answer went past the guard:
// an adapter gave the framework another writer, or the handler left the answer to a goroutine.
//
// By default, and with the zero Outcome, the empty 200 is judged as any other answer, and the
// first such run of a route is an [event.Silent] and a warning in the log. But if the header of the
// writer outside shows that the handler has answered past the guard, only the fact is recorded:
// retries are refused with 409 response-not-kept, and no handler runs. So it is in iris, which may
// answer by a writer of its own. [Final] says that the route means it, and ends the warning. With
// [NotExecuted] and [Unknown] nothing is recorded, and the guard leaves the answer to the handlers outside.
//
// If the handler writes after such a return, and the run is not judged yet, its outcome is
// Unknown, and the guard reports that too. [Operation.SetOutcome] takes precedence.
func WithSilence(o Outcome) Option {
	return optionFunc(func(s *settings) { s.silence = o })
}

// WithMismatchStatus sets the status for a key that was used with another payload. The
// default is 409; draft-ietf-httpapi-idempotency-key-header-07 section 2.7 says 422, and
// some APIs answer 400. It must be a 4xx status, and none that asks the client for something else: 401, 407, 408,
// 421, 425, 429 and 499 are refused.
func WithMismatchStatus(status int) Option {
	return optionFunc(func(s *settings) { s.mismatchStatus = status })
}

// WithErrorWriter sets the function that writes refusals, for APIs whose errors have
// another format. The default writes application/problem+json (RFC 9457); a nil function
// is an error. Before the call the guard sets Cache-Control and, if a retry can help,
// Retry-After on w. The function writes the Content-Type, the status p.Status and the body. Without a status,
// net/http makes a success of the refusal. It is told in
// p.Differs what a request with a reused key has changed, which the default does not tell.
func WithErrorWriter(f func(w http.ResponseWriter, r *http.Request, p problem.Document)) Option {
	return optionFunc(func(s *settings) { s.errorWriter = f })
}

// WithPolicyURL names the page that describes the API's rules for idempotency keys.
// The type of a problem becomes that URL with the code as fragment, and each refusal links
// to the page. The URL must be absolute, of http or https, and have no fragment. By default it is empty and
// the type is about:blank.
func WithPolicyURL(url string) Option {
	return optionFunc(func(s *settings) { s.policyURL = url })
}

// WithExpiryHeader names the field in which answers say for how long the key is good, in whole
// seconds: that long, a repetition meets what became of the first request. Package
// client looks for Idempotency-TTL. By default the name is empty, and there is no such field. It must not
// be the name of a field that says something else, such as Location, Retry-After or ETag.
//
// The field is in the answer of a run that is recorded before its answer is sent, in each replay,
// and in the refusals in-flight, outcome-unknown and response-not-kept, unless the record has no
// end. An answer that the handler flushes goes out before it is recorded, without the field. The
// guard neither sends nor records a field of this name that a handler has set.
func WithExpiryHeader(name string) Option {
	return optionFunc(func(s *settings) { s.expiryHeader = textproto.CanonicalMIMEHeaderKey(name) })
}

// WithAuthorizeReplay sets a function that decides before each replay whether this
// request may see the recorded answer: its caller may have lost a right since the answer
// was made. If it returns an error the client gets 403 replay-denied, or 503 for
// [ErrTryLater], without the error's text. The body of r has been read, so the function cannot parse a form. Nil, the default,
// replays to everyone in the scope.
func WithAuthorizeReplay(f func(r *http.Request, rec RecordInfo) error) Option {
	return optionFunc(func(s *settings) { s.authorizeReplay = f })
}

// WithShadow leaves requests, handlers and functions of [Do] alone, and reports for each, as
// [event.Shadow], what the guard would have done. It is for the time before a guard goes live: it
// shows which clients repeat requests, and what would be replayed or refused. The default is
// false.
//
// The guard asks the store in the background, so a slow store delays nobody. It looks at 1,024
// requests at a time, and reports that it has passed over the others. Its records are not those
// of a live guard: they are in scopes of their own, hold a digest in place of the answer, and end
// with the TTL. So nothing of them counts when the option is taken away.
//
// A handler runs without an [Operation], and its request body is copied as it reads it, up to the
// limit of [Limits].RequestBody. If it does not read all of it, nothing is known of the request.
// The functions of the options are called as a live guard calls them, but those of [WithResolver],
// [WithAuthorizeReplay], [WithErrorWriter] and [WithSealer] are not, and no run has a span.
func WithShadow(on bool) Option {
	return optionFunc(func(s *settings) { s.looksOn = on })
}

// with returns a copy with the options applied and checked. All mistakes are
// reported at once.
func (s settings) with(opts []Option) (*settings, error) {
	for _, o := range opts {
		if o != nil {
			o.Apply(&s)
		}
	}
	s.recording = response.Settings{
		Echo: s.header, Expiry: s.expiryHeader, Limit: s.rules.MaxAnswer, Judged: s.rules.OutcomeChosen, Drop: answer.NamesOf(s.unrecorded...),
	}
	if resolve := s.resolver; resolve != nil {
		recording := s.recording
		s.rules.Resolver = func(ctx context.Context, f engine.Found) (engine.Resolution, error) {
			res, err := resolve(ctx, infoOf(f))
			return res.forEngine(recording), err
		}
	}
	s.rules.Whole = &s
	return &s, s.validate()
}
