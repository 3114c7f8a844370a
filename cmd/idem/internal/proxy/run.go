// Package proxy is idem proxy: a reverse proxy with a guard inside, which protects a service in any language.
//
//   - config.go: what it is told; check.go: what of it cannot work; routes.go: the rules of requests; scope.go, jwt.go: whose a key is
//   - verdict.go: what an answer, or the lack of one, means
//   - access.go, path.go, forward.go, upstream.go: the way of a request, from outside to inside
//   - store.go, admin.go, run.go: the records, what operators see, the process
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/otelidempotency"
)

// A server is a proxy that is ready to serve.
type server struct {
	config *Config
	log    logs
	store  idempotency.Store
	close  func()
	table  *table
	admin  *admin
	front  http.Handler
	back   http.Handler // of the admin address
}

// build makes the rules and their handlers.
func (c *Config) build(store idempotency.Store, log logs, common ...idempotency.Option) (*table, http.Handler, error) {
	to, h2c, err := c.target()
	scope, err2 := scopeOf(c.Scope, c.JWT, log.Logger)
	if errs := errors.Join(err, err2); errs != nil {
		return nil, nil, errs
	}
	t, err := newTable(c, store, scope, append(common, idempotency.WithLogger(slog.New(otelidempotency.NewLogHandler(log.Handler()))), idempotency.WithObserver(observe), idempotency.WithFindableScope(c.Findable))...)
	if err != nil {
		return nil, nil, err
	}
	transport := newTransport(h2c, c.Fresh)
	for _, r := range t.rules {
		r.handler = newForwarder(c, to, &hop{transport, h2c, r.Timeout}, log.Logger)
		if r.guard != nil {
			r.handler = r.guard.Handler(r.handler)
		}
	}
	return t, access(t, log.requests, bodyTime), nil
}

// newServer opens the store and makes the handlers.
func newServer(ctx context.Context, c *Config, log logs) (s *server, err error) {
	s = &server{config: c, log: log}
	if err := c.Check(); err != nil {
		return nil, err
	}
	if s.store, s.close, err = c.Store.open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	var common []idempotency.Option
	if s.admin, common, err = newAdmin(); err != nil {
		return nil, err
	}
	if s.table, s.front, err = c.build(s.store, s.log, common...); err != nil {
		return nil, err
	}
	if s.back, err = s.admin.handler(s.table, s.store); err == nil {
		s.back = knownHosts(c.Admin, s.back)
	}
	return s, err
}

// lookEvery is how often the proxy looks for keys that are held although no client comes back, and for records that
// the store has forgotten.
const lookEvery = 15 * time.Second

// Run serves until ctx ends, and then ends what is under way. Its log is JSON, a line for each request.
func Run(ctx context.Context, c Config, logTo io.Writer) error {
	log, flush := newLogs(logTo)
	defer flush()
	s, err := newServer(ctx, &c, log)
	if err != nil {
		return err
	}
	defer s.close()
	var open net.ListenConfig
	listener, err := open.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return err
	}
	front := serverOf(s.front, s.log.Logger)
	front.Protocols = new(http.Protocols)
	front.Protocols.SetHTTP1(true)
	front.Protocols.SetUnencryptedHTTP2(true)
	back := serverOf(s.back, s.log.Logger)
	failed := make(chan error, 3)
	if c.Admin != "off" {
		l, err := open.Listen(ctx, "tcp", c.Admin)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		c.Admin = l.Addr().String()
		go func() { failed <- back.Serve(l) }()
	}
	c.Listen = listener.Addr().String()
	go func() { failed <- front.Serve(listener) }()
	go func() { failed <- s.table.root.Reconcile(ctx, lookEvery) }()
	s.announce()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.admin.ending.Store(true)
	s.log.InfoContext(ctx, "shutting down")
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Grace)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- s.table.root.Shutdown(end) }()
	return errors.Join(err, front.Shutdown(end), <-recorded, back.Close())
}

// serverOf returns a server whose clients cannot take their time over a header.
func serverOf(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// announce says what is protected, and what is not.
func (s *server) announce() {
	kind, _ := s.config.Store.kind()
	s.log.Info("listening", "on", s.config.Listen, "admin", s.config.Admin, "to", s.config.To, "store", kind, "scope", s.config.Scope)
	for _, p := range s.table.protections() {
		s.log.Info("route", "match", p.match, "protected", p.protected, "passed", p.passed)
	}
	if kind == "memory" {
		s.log.Warn(memoryOnly)
	}
	if s.config.Scope == "shared" {
		s.log.Warn(sharedByAll)
	}
	if host, _, _ := net.SplitHostPort(s.config.Admin); s.config.Admin != "off" && !net.ParseIP(host).IsLoopback() {
		s.log.Warn("whoever reaches the admin address reads the metrics", "admin", s.config.Admin)
	}
}

// A protection is what a rule protects, in words.
type protection struct{ match, protected, passed string }

func (t *table) protections() (all []protection) {
	for _, pattern := range t.order {
		p := protection{pattern, "nothing", "everything"}
		if r := t.rules[pattern]; r.guard != nil {
			policy := r.guard.Policy()
			methods := strings.Join(policy.Methods, " and ")
			p.protected, p.passed = methods+" with a key", "requests without a key, other methods"
			if policy.Required {
				p.protected, p.passed = methods+", key required", "other methods"
			}
		}
		all = append(all, p)
	}
	return all
}

// Print writes the rules that a configuration makes, as a table.
func (c *Config) Print(w io.Writer) error {
	t, _, err := c.build(idempotency.NewMemoryStore(), unlogged)
	if err != nil {
		return err
	}
	kind, _ := c.Store.kind()
	fmt.Fprintf(w, "to %s, scope %s, store %s\n\n", c.To, c.Scope, kind)
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "MATCH\tPROTECTED\tPASSED\tTTL\tRECOVERY\tFINGERPRINT\tTIMEOUT")
	for _, p := range t.protections() {
		r := t.rules[p.match]
		cells := []any{p.match, p.protected, p.passed, "-", "-", "-", "-"}
		if r.guard != nil {
			cells = append(slices.Clone(cells[:3]), r.guard.Policy().TTL, r.Recovery, r.Fingerprint, r.Timeout)
		}
		fmt.Fprintf(out, "%v\t%v\t%v\t%v\t%v\t%v\t%v\n", cells...)
	}
	return out.Flush()
}
