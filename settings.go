package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/differ"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/internal/token"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Defaults and limits of the options.
const (
	defaultTTL            = 24 * time.Hour
	defaultLease          = 30 * time.Second
	defaultHeader         = "Idempotency-Key"
	defaultMaxBody        = 1 << 20
	minLease              = 10 * time.Millisecond
	minTTL                = time.Millisecond // less is a number that lacks its unit
	maxBodyLimit          = 1 << 30
	defaultMismatchStatus = http.StatusConflict
	maxWait               = 5 * time.Minute
	maxLease              = 24 * time.Hour
	defaultTombstones     = 30 * 24 * time.Hour
	maxTTL                = 10 * 365 * 24 * time.Hour
	minRefusalStatus      = 400
	maxRefusalStatus      = 499
	maxRouteLen           = 64
)

// settings are what the options of a guard say: the rules of its runs, and what only a request needs.
type settings struct {
	rules                         engine.Rules
	required, strictKeys, looksOn bool
	methods                       []string
	header                        string
	keyFunc                       KeyFunc
	reference                     func(*http.Request, []byte) string
	fingerprint                   FingerprintFunc
	formerFingerprints            []FingerprintFunc
	maxRequestBody, waitingBytes  int64
	unrecorded                    []string
	recording                     response.Settings // what is recorded, by the other settings
	outcome                       func(int, http.Header) Outcome
	silence                       Outcome
	mismatchStatus                int
	errorWriter                   func(http.ResponseWriter, *http.Request, problem.Document)
	policyURL, expiryHeader       string
	authorizeReplay               func(*http.Request, RecordInfo) error
	recovery                      Recovery
	resolver                      func(context.Context, RecordInfo) (Resolution, error)
}

func defaultSettings() settings {
	return settings{
		rules:          engine.Rules{TTL: defaultTTL, Lease: defaultLease, Tombstones: defaultTombstones, MaxAnswer: defaultMaxBody, Reporter: engine.NewReporter()},
		methods:        []string{http.MethodPost, http.MethodPatch},
		header:         defaultHeader,
		fingerprint:    RawFingerprint,
		maxRequestBody: defaultMaxBody,
		waitingBytes:   engine.DefaultWaitingBytes,
		outcome:        DefaultOutcome,
		mismatchStatus: defaultMismatchStatus,
		errorWriter:    writeProblem,
	}
}

func (s *settings) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("idempotency: "+format, args...))
		}
	}
	check(s.rules.TTL >= minTTL && s.rules.TTL <= maxTTL, "WithTTL: %v is not between %v and %v", s.rules.TTL, minTTL, maxTTL)
	check(s.rules.Lease >= minLease && s.rules.Lease <= maxLease, "WithLease: %v is not between %v and %v", s.rules.Lease, minLease, maxLease)
	check(s.rules.Retention == 0 || s.rules.Retention >= engine.MinRetentionInLeases*s.rules.Lease && s.rules.Retention <= maxTTL,
		"WithRetention: %v is not at least twice the lease %v and at most %v", s.rules.Retention, s.rules.Lease, maxTTL)
	check(s.rules.Tombstones <= maxTTL, "WithTombstones: %v is longer than %v", s.rules.Tombstones, maxTTL)
	check(s.rules.Wait >= 0 && s.rules.Wait <= maxWait, "WithWait: %v is not between 0 and %v", s.rules.Wait, maxWait)
	check(s.waitingBytes >= engine.MinWaitingBytes && s.waitingBytes <= engine.MaxWaitingBytes,
		"WithLimits: WaitingBytes %d is not between %d and %d", s.waitingBytes, engine.MinWaitingBytes, int64(engine.MaxWaitingBytes))
	check(len(s.methods) > 0, "WithMethods: no method")
	for _, m := range s.methods {
		check(token.IsMethod(m), "WithMethods: %q is not a method, which are case-sensitive", m)
	}
	check(token.Is(s.header) && !slices.Contains(taken, s.header), "WithHeader: %q is not the name of a field that can carry a key", s.header)
	noFunction := func(f FingerprintFunc) bool { return f == nil }
	check(!noFunction(s.fingerprint) && !slices.ContainsFunc(s.formerFingerprints, noFunction), "WithFingerprint: nil function")
	check(s.maxRequestBody > 0 && s.maxRequestBody <= maxBodyLimit,
		"WithLimits: RequestBody %d is not between 1 and %d", s.maxRequestBody, maxBodyLimit)
	check(s.rules.MaxAnswer > 0 && s.rules.MaxAnswer <= maxBodyLimit,
		"WithLimits: ResponseBody %d is not between 1 and %d", s.rules.MaxAnswer, maxBodyLimit)
	for _, name := range s.unrecorded {
		check(token.Is(name) && name != "Content-Encoding", "WithUnrecorded: %q is not the name of a field that a replay can do without", name)
	}
	check(s.outcome != nil, "WithOutcome: nil function")
	check(s.silence <= Unknown, "WithSilence: %v is not an Outcome", s.silence)
	check(s.recovery >= Hold, "WithRecovery: it takes Rerun, Hold, or HoldAfter with at least one attempt")
	check(!s.rules.FailOpen || s.recovery == Rerun, "WithFailOpen: WithRecovery(%v) lets nothing run without a record", s.recovery)
	check(s.mismatchStatus >= minRefusalStatus && s.mismatchStatus <= maxRefusalStatus && !response.GivesUp(s.mismatchStatus) && !response.TurnsAway(s.mismatchStatus),
		"WithMismatchStatus: %d is not a 4xx status that says that no retry helps", s.mismatchStatus)
	check(s.errorWriter != nil, "WithErrorWriter: nil function")
	check(s.expiryHeader == "" || token.Is(s.expiryHeader) && s.expiryHeader != s.header && !slices.Contains(taken, s.expiryHeader),
		"WithExpiryHeader: %q is not a field name, or one that the guard uses for something else", s.expiryHeader)
	check(!s.rules.Seals.KeptKeys || s.rules.Seals.Sealer != nil, "WithKeptKeys: there is no sealer; see WithSealer")
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	check(len(s.rules.Route) <= maxRouteLen && !strings.ContainsFunc(s.rules.Route, unprintable), "WithRoute: %q is not a label of at most %d printable bytes", s.rules.Route, maxRouteLen)
	if s.policyURL != "" {
		u, err := url.Parse(s.policyURL)
		check(err == nil && strings.HasPrefix(u.Scheme, "http") && u.Host != "" && u.Fragment == "" && u.String() == s.policyURL,
			"WithPolicyURL: %q is not an absolute http or https URL without fragment", s.policyURL)
	}
	return errors.Join(errs...)
}

func (s *settings) protects(method string) bool {
	return slices.Contains(s.methods, method)
}

// wantsKey reports whether the guard has to do with a request beyond its method: it has a key, or
// needs one.
func (s *settings) wantsKey(r *http.Request) bool {
	return s.protects(r.Method) && (len(s.keyFields(r.Header)) > 0 || s.wantsKeyless())
}

// keyFields returns the values of the field of the key.
func (s *settings) keyFields(h http.Header) []string { return keyheader.Fields(h, s.header) }

// wantsKeyless is wantsKey for a request that does not have the field of the key.
func (s *settings) wantsKeyless() bool { return s.keyFunc != nil || s.required }

// checkStore reports what the settings need and the store cannot do.
func (s *settings) checkStore(st Store) error {
	if _, ok := st.(store.Inspector); s.resolver != nil && st != nil && !ok {
		return fmt.Errorf("idempotency: WithResolver: %w", ErrNoInspector)
	}
	if st != nil && (s.rules.FindableScope || s.reference != nil) {
		if _, err := engine.FinderOf(st); err != nil {
			return fmt.Errorf("idempotency: WithReference or WithFindableScope: %w", err)
		}
	}
	if _, ok := st.(store.TxStore); s.rules.Transaction && st != nil && !ok {
		return fmt.Errorf("idempotency: WithTransaction: %w", ErrCannotJoin)
	}
	return nil
}

// routeOf returns what events call the route of a request.
func (s *settings) routeOf(r *http.Request) string {
	return cmp.Or(s.rules.Route, r.Pattern)
}

// within returns an error if settings do nothing where the guard stands inside a run of another's. Those by which it
// finds that run or reports are not lost, nor what it demands of a request that the other has accepted. The writer of
// errors has nothing to write then, and modules make one for each of their middleware.
func (s *settings) within(outer *settings) error {
	return differ.Check(s, outer, "required", "methods", "header", "keyFunc", "strictKeys", "looksOn", "waitingBytes", "maxRequestBody", "errorWriter",
		"Route", "Trace", "Calls", "Reporter", "Whole", "recording", "Hold", "MaxAttempts", "OutcomeChosen", "Resolver")
}

var errWaitingBytes = errors.New("idempotency: WithLimits: guards that With makes share one waiting room; set WaitingBytes in New")

// judge asks the route's function about an answer.
func (s *settings) judge(status int, h http.Header) Outcome {
	outcome := s.outcome(status, h)
	if outcome < Final || outcome > Unknown {
		return Unknown
	}
	return outcome
}

func (s *settings) binding() policy.Binding {
	switch {
	case sameFunc(s.fingerprint, RawFingerprint):
		return policy.Exact
	case sameFunc(s.fingerprint, JSONFingerprint):
		return policy.JSON
	default:
		return policy.Own
	}
}

// taken are fields that net/http takes out of a request, or that say something else of one or of its answer.
var taken = []string{
	problem.Header, response.ReplayedHeader, "Accept-Ranges", "Access-Control-Allow-Origin", "Age", "Authorization", "Cache-Control", "Connection",
	"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length", "Content-Location", "Content-Range", "Content-Type", "Cookie",
	"Date", "Etag", "Expect", "Expires", "Host", "Keep-Alive", "Last-Modified", "Link", "Location", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Range", "Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"User-Agent", "Vary", "Www-Authenticate",
}

// expiryField returns the field that says for how long a key is good. It must not be asked for
// if the guard does not send one.
func (s *settings) expiryField(ttl time.Duration) answer.Field {
	seconds := strconv.FormatInt(int64(ttl/time.Second), 10)
	return answer.Field{Name: s.expiryHeader, Values: []string{seconds}}
}

// tellsExpiry reports whether an answer says for how long the key is good. Zero is a time that
// is not known.
func (s *settings) tellsExpiry(ttl time.Duration) bool {
	return s.expiryHeader != "" && ttl > 0 && ttl != store.Forever
}

// addExpiry makes the field a part of an answer that is about to be replayed. It replaces a
// field of that name in the record, which was true of another moment.
func (s *settings) addExpiry(a *answer.Answer, ttl time.Duration) {
	if s.tellsExpiry(ttl) {
		a.Header = append(slices.Clip(a.Header), s.expiryField(ttl))
	}
}

func (s *settings) setExpiry(h http.Header, ttl time.Duration) {
	if s.tellsExpiry(ttl) {
		h[s.expiryHeader] = s.expiryField(ttl).Values
	}
}

// goodFor returns how long the key of a run in flight is surely good. If the run gives no
// answer, the record is kept for what is left of it, and if it gives one, for the TTL from then
// on.
func (s *settings) goodFor(rec store.Record) time.Duration { return min(rec.TTL, s.rules.TTL) }
