package rpc

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/keyheader"
	"example.com/idempotency/internal/reserved"
	"example.com/idempotency/problem"
)

// A ScopeFunc tells whose key a call carries.
type ScopeFunc = func(context.Context) (string, error)

// A Config is what the options of an interceptor set.
type Config struct {
	Module     string // for panics
	Guard      *idempotency.Guard
	Scope      ScopeFunc
	Shared     ScopeFunc // the one that may return store.Shared
	Procedures map[string][]idempotency.Option
	// Outcome is the program's own judgement of an error, nil for success.
	Outcome func(error) idempotency.Outcome
	Streams bool
}

// A Server protects the calls of a server.
type Server struct {
	Config

	shared bool
	rest   *route            // for procedures without options of their own
	own    map[string]*route // for the others
	// labelled are the routes for the runs of the rest, by procedure, and count how many they are.
	labelled sync.Map
	count    atomic.Int32
	gateway  atomic.Bool // a call has come through one
}

// A route is what the guard's settings mean for one procedure.
type route struct {
	guard            *idempotency.Guard
	reports          adapter.Guard
	field            string // of the metadata
	required, strict bool
	unrecorded       answer.Names
	clientCancel     bool
}

// NewServer returns a server. It panics where the configuration cannot work.
func NewServer(c Config) *Server {
	if c.Guard == nil {
		panic(c.Module + ": nil guard")
	}
	if c.Scope == nil {
		panic(c.Module + ": nil scope; use SharedScope to share one namespace")
	}
	s := &Server{
		Config: c, shared: reflect.ValueOf(c.Scope).Pointer() == reflect.ValueOf(c.Shared).Pointer(),
		own: make(map[string]*route),
	}
	for procedure, opts := range c.Procedures {
		s.own[procedure] = s.newRoute(append([]idempotency.Option{idempotency.WithRoute(label(procedure))}, opts...)...)
	}
	s.rest = s.newRoute()
	return s
}

// require panics if the guard has options that mean nothing without an HTTP request. To leave them
// out in silence would be to drop a check, or a field that clients rely on.
func (c *Config) require(g *idempotency.Guard) {
	if options := adapter.For(g).Settings().NeedHTTP; len(options) > 0 {
		panic(c.Module + ": the guard has " + strings.Join(options, " and ") +
			", which needs an HTTP request: take it away with guard.With, and authorize calls in an interceptor outside")
	}
}

const (
	maxLabel  = 64   // bytes of the label of a route
	maxLabels = 1024 // labels of procedures that no option names
)

// label returns the end of the name of a procedure, with nothing in it that a label cannot have.
func label(procedure string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, procedure[max(0, len(procedure)-maxLabel):])
}

func (s *Server) newRoute(opts ...idempotency.Option) *route {
	if s.Outcome != nil {
		// The guard takes the word of a function that was chosen, whatever steps a run has taken.
		opts = append([]idempotency.Option{idempotency.WithOutcome(idempotency.DefaultOutcome)}, opts...)
	}
	g := s.Guard.With(opts...)
	s.require(g)
	reports, p := adapter.For(g), g.Policy()
	own := reports.Settings()
	return &route{
		guard: g, reports: reports, field: strings.ToLower(p.Key.Header), required: p.Required, strict: p.Key.Strict,
		unrecorded: answer.NamesOf(own.Unrecorded...), clientCancel: own.ClientCancel,
	}
}

// route returns what is known of a procedure before its key is: nothing is made for a call without one.
func (s *Server) route(procedure string) route {
	if r, ok := s.own[procedure]; ok {
		return *r
	}
	r := *s.rest
	r.reports = r.reports.Named(label(procedure))
	return r
}

// forRun returns the route of a call that has a key. A server has as many procedures as it has registered;
// those that somebody makes up get no label of their own.
func (s *Server) forRun(procedure string) *route {
	if r, ok := s.own[procedure]; ok {
		return r
	}
	if r, ok := s.labelled.Load(procedure); ok {
		return r.(*route)
	}
	if s.count.Add(1) > maxLabels {
		s.count.Add(-1)
		return s.rest
	}
	r, known := s.labelled.LoadOrStore(procedure, s.newRoute(idempotency.WithRoute(label(procedure))))
	if known {
		s.count.Add(-1)
	}
	return r.(*route)
}

// A Call is one unary call.
type Call struct {
	Procedure string
	// Values returns the metadata of a name in lower case.
	Values func(name string) []string
	// Gateway reports whether the call has come through grpc-gateway; nil where none can be.
	Gateway func() bool
	// Payload returns the message in an encoding that is the same for equal messages.
	Payload func() ([]byte, error)
	// Run calls the handler. It is called at most once.
	Run func(context.Context) *Reply
}

// An Answer says what a call gets.
type Answer struct {
	// Pass says that the call is not protected: it has no key, or a run around it holds the key.
	Pass bool
	// Replay is what an earlier run has recorded.
	Replay *Reply
	// Refusal is the refusal of the guard. If all three are unset, what Run has returned counts.
	Refusal *Refusal
}

// refuse refuses a call before it comes to Do, and reports that.
func (r *route) refuse(ctx context.Context, scope string, p problem.Code, cause error) Answer {
	r.reports.ReportRefused(ctx, scope, p, cause)
	return Answer{Refusal: Refuse(p)}
}

// OnlyLooks reports whether the guard of a procedure leaves its calls alone.
func (s *Server) OnlyLooks(procedure string) bool {
	return s.route(procedure).reports.OnlyLooks()
}

// Handle finds out what a call gets, and runs its handler if it is the first with its key.
func (s *Server) Handle(ctx context.Context, c Call) Answer {
	r := s.route(c.Procedure)
	a := r.handle(ctx, s, c)
	if a.Refusal != nil && r.reports.OnlyLooks() {
		return Answer{Pass: true}
	}
	return a
}

func (r *route) handle(ctx context.Context, s *Server, c Call) Answer {
	key, err := r.key(c.Values(r.field))
	switch {
	case err != nil:
		a := r.refuse(ctx, "", problem.KeyInvalid, nil) // the client's doing, and it is told
		a.Refusal.Message = err.Error()
		return a
	}
	dropped := s.throughGateway(c, key != "")
	switch {
	case key == "" && r.required:
		return r.refuse(ctx, "", problem.KeyMissing, dropped)
	case key == "":
		r.reports.ReportBypassed(ctx, dropped)
		return Answer{Pass: true}
	}
	scope, code, err := s.scopeOf(ctx)
	if err != nil {
		return r.refuse(ctx, "", code, err)
	}
	k := idempotency.Key{Scope: scope, Value: key}
	if nested, err := r.reports.PassesNested(ctx, k.Scope, k.Value); err != nil {
		return r.refuse(ctx, scope, problem.Misplaced, err)
	} else if nested {
		return Answer{Pass: true}
	}
	message, err := c.Payload()
	if err != nil {
		return r.refuse(ctx, scope, problem.FingerprintFailed, err)
	}
	return s.forRun(c.Procedure).call(ctx, c, k, slices.Concat([]byte(c.Procedure), []byte{0}, message))
}

var errGateway = errors.New("idempotency: a call has come through grpc-gateway without a key. A gateway made with plain runtime.NewServeMux() drops the key of the HTTP request: give it runtime.WithIncomingHeaderMatcher(grpcclient.IncomingHeader(runtime.DefaultHeaderMatcher))")

// throughGateway returns why a key may be missing: of the first call that comes through grpc-gateway, if it
// has none.
func (s *Server) throughGateway(c Call, keyed bool) error {
	if c.Gateway == nil || s.gateway.Load() || !c.Gateway() || s.gateway.Swap(true) || keyed {
		return nil
	}
	return errGateway
}

// RefuseStream returns why a stream must not be run, and nil if it may. A procedure that is not registered
// has a name that the client has chosen.
func (s *Server) RefuseStream(ctx context.Context, procedure string, registered bool, values func(name string) []string) *Refusal {
	r := s.route(procedure)
	if s.Streams || !r.required && len(values(r.field)) == 0 {
		return nil
	}
	if !registered {
		r.reports = r.reports.Named("")
	}
	a := r.refuse(ctx, "", StreamUnprotected, nil)
	if r.reports.OnlyLooks() {
		return nil
	}
	return a.Refusal
}

// key returns the key of a call, and nothing if it has none.
func (r *route) key(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return keyheader.Parse(values[0], r.strict)
	default:
		return "", keyheader.ErrRepeated
	}
}

var (
	errEmptyScope    = errors.New("idempotency: the scope function returned an empty scope")
	errReservedScope = errors.New("idempotency: the scope function returned a scope that begins with a zero byte; only SharedScope may")
)

func (s *Server) scopeOf(ctx context.Context) (scope string, code problem.Code, err error) {
	scope, err = s.Scope(ctx)
	switch {
	case errors.Is(err, idempotency.ErrUnauthenticated):
		return "", problem.Unauthenticated, err
	case errors.Is(err, idempotency.ErrTryLater):
		return "", problem.TryLater, err
	case err == nil && scope == "":
		err = errEmptyScope
	case err == nil && reserved.Is(scope) && !s.shared:
		err = errReservedScope
	}
	return scope, problem.ScopeUnresolved, err
}

func (r *route) call(ctx context.Context, c Call, key idempotency.Key, payload []byte) Answer {
	claiming, detach, release := ctx, func() {}, func() {}
	if !r.clientCancel {
		claiming, detach, release = untilDetached(ctx)
	}
	defer release()
	defer detach()
	var own *Reply
	recorded, result, err := idempotency.Do(claiming, r.guard, key, func(ctx context.Context) (*Reply, error) {
		detach()
		own = c.Run(ctx)
		own.leaveOut(r.unrecorded)
		return own, nil
	}, idempotency.WithPayload(payload), idempotency.WithCodec(codec{}))
	switch {
	case err == nil && result.Replayed:
		return Answer{Replay: recorded}
	case err == nil:
		if code := correction(own, result); code != "" {
			return Answer{Refusal: Refuse(code)}
		}
		return Answer{}
	case own != nil && result.Code == "":
		return Answer{} // it could not be recorded, and the key is held
	case errors.Is(err, idempotency.ErrNested):
		return Answer{Pass: true}
	case result.Code != "":
		return Answer{Refusal: Refuse(result.Code)}
	case errors.Is(err, idempotency.ErrCorrupt):
		return Answer{Refusal: Refuse(problem.AnswerUnreadable)}
	case ctx.Err() != nil:
		return Answer{Refusal: ended(ctx)}
	default:
		return Answer{Refusal: Refuse(problem.StoreUnavailable)}
	}
}

// ended is the answer to a call that has ended before its key was claimed. Usually nobody hears it.
func ended(ctx context.Context) *Refusal {
	r := Refuse(problem.NoAnswer)
	r.Code, r.Retry = Canceled, 0
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.Code = DeadlineExceeded
	}
	return r
}

// untilDetached returns a context that ends with ctx until detach is called, and then at the
// deadline of ctx alone: a client that hangs up must find the answer when it comes back.
func untilDetached(ctx context.Context) (_ context.Context, detach, release func()) {
	c, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})
	end := func() { cancel(nil) }
	if deadline, ok := ctx.Deadline(); ok {
		var stopTimer context.CancelFunc
		c, stopTimer = context.WithDeadline(c, deadline)
		end = func() { stopTimer(); cancel(nil) }
	}
	return c, func() { stop() }, end
}

// correction returns what the client of a run of unknown outcome is told in place of the handler's
// answer, or nothing where that may be shown. A definite refusal says that nothing was done. So may
// the refusal of a guard behind this one, which knows nothing of what the handler did itself.
func correction(r *Reply, result idempotency.Result) problem.Code {
	if result.Outcome != idempotency.Unknown || r.Problem == "" && !r.deniesEffect() && (!result.Held || r.Code != Aborted) {
		return ""
	}
	switch r.Problem {
	case problem.OutcomeUnknown, problem.ResponseNotKept, problem.AnswerUnreadable:
		return ""
	}
	switch {
	case result.Held:
		return problem.OutcomeUnknown
	case r.Problem == problem.InFlight:
		return ""
	default:
		return problem.NoAnswer
	}
}
