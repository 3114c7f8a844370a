package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/internal/token"
)

// This file refuses settings that can be read, and cannot work: each would be a rule that nobody keeps.

// Check says what is wrong with a configuration, without its store and its service.
func (c *Config) Check() error {
	errs := []error{c.Store.check(), c.checkAddresses(), c.checkScope()}
	for _, mistake := range []struct {
		made bool
		text string
	}{
		{c.JWT != (JWT{}) && !strings.HasPrefix(c.Scope, "jwt:"), "jwt: tokens are verified for the scope jwt:CLAIM alone; the scope is " + c.Scope},
		{c.TTL == 0, "ttl: 0 keeps no answer; leave it out for 24h"},
		{c.Lease == 0, "lease: 0 keeps no key taken; leave it out for 30s"},
		{c.RequestBody == 0, "request_body: 0 lets no body in; leave it out for 1 MiB"},
		{c.ResponseBody == 0, "response_body: 0 keeps no answer; leave it out for 1 MiB"},
		{c.Grace < 0, "grace: it must not be negative"},
	} {
		if mistake.made {
			errs = append(errs, errors.New(mistake.text))
		}
	}
	for _, r := range c.Routes {
		if err := r.checkPattern(); err != nil {
			errs = append(errs, fmt.Errorf("route %q: %w", r.Match, err))
		}
	}
	_, _, err := c.build(idempotency.NewMemoryStore(), unlogged)
	return errors.Join(append(errs, err)...)
}

// checkAddresses checks where clients and operators come, and that the proxy is not its own service.
func (c *Config) checkAddresses() error {
	var errs []error
	for name, address := range map[string]string{"listen": c.Listen, "admin": c.Admin} {
		_, port, err := net.SplitHostPort(address)
		if name == "admin" && address == "off" {
			continue
		}
		if err != nil || !isPort(port) {
			errs = append(errs, fmt.Errorf("%s: %q must be host:port", name, address))
		} else if port != "0" && name == "admin" && address == c.Listen {
			errs = append(errs, errors.New("admin: it must not be the address of clients"))
		}
	}
	if to, _, err := c.target(); err == nil && to.Host == c.Listen {
		errs = append(errs, errors.New("to: it is the address of the proxy itself"))
	}
	return errors.Join(errs...)
}

// checkPattern refuses patterns that the router of net/http takes, and that no request matches, or not the one that was
// meant.
func (r *Route) checkPattern() error {
	method, path, named := strings.Cut(r.Match, " ")
	if !named {
		path = method
	}
	host, _, _ := strings.Cut(path, "/")
	switch {
	case strings.TrimSpace(path) != path || strings.Contains(r.Match, "\t"):
		return errors.New("it has a blank too many")
	case named && r.Methods != nil && !slices.Contains(r.Methods, method):
		return errors.New("the pattern has a method that is not one of methods")
	case strings.Contains(path, "//") || strings.Contains(path, "/./") || strings.Contains(path, "/../"):
		return errors.New("the path is not clean, and those of requests are")
	case strings.ContainsAny(path, "?#"):
		return errors.New("a pattern has no query")
	case host != hostOf(host):
		return errors.New("the host of a pattern is in lower case, without a port and without a dot at its end")
	}
	return nil
}

// ownFields are those that net/http or the proxy takes away, or sets itself.
var ownFields = []string{
	"Connection", "Content-Length", "Expect", "Forwarded", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Traceparent", "Tracestate", "Trailer", "Transfer-Encoding", "Upgrade",
}

// checkScope refuses a field that cannot tell callers apart.
func (c *Config) checkScope() error {
	name, ok := strings.CutPrefix(c.Scope, "header:")
	if !ok || name == "" {
		return nil
	}
	switch read := textproto.CanonicalMIMEHeaderKey(name); {
	case !token.Is(name):
		return fmt.Errorf("scope: %q is not the name of a field", name)
	case slices.Contains(ownFields, read), strings.HasPrefix(read, "Idempotency-"), strings.HasPrefix(read, "X-Forwarded-") && !c.TrustForwarded:
		return fmt.Errorf("scope: %s is not what callers are known by: the proxy, or HTTP, removes it or sets it", read)
	}
	return nil
}
