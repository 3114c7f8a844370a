package client

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"example.com/idempotency/client/profile"
)

// This file knows which servers honour keys: those that the program has named, and those
// that have shown it.

// A declaration is what [WithServer] says about hosts.
type declaration struct {
	server profile.Server
	hosts  []string
}

func (d *declaration) validate() error {
	if len(d.hosts) == 0 {
		return fmt.Errorf("client: WithServer: %s has no host", d.server.Name)
	}
	for _, host := range d.hosts {
		if host != "*" && !isHost(strings.TrimPrefix(host, "*.")) {
			return fmt.Errorf("client: WithServer: %q is not a host", host)
		}
	}
	return d.server.Validate()
}

// isHost reports whether a URL can have a host like that, with or without a port.
func isHost(name string) bool {
	if net.ParseIP(name) != nil {
		return true
	}
	u, err := url.Parse("http://" + name)
	return err == nil && u.Host == name && u.Hostname() != "" && !strings.HasSuffix(name, ":") && !strings.Contains(name, "*")
}

// names reports whether a declaration is about the host of a URL.
func (d *declaration) names(u *url.URL) bool {
	for _, host := range d.hosts {
		name := u.Hostname()
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = strings.Trim(host, "[]")
		} else if name = u.Host; u.Port() == "" {
			name += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
		}
		suffix, wild := strings.CutPrefix(host, "*")
		if wild && len(name) > len(suffix) && strings.EqualFold(name[len(name)-len(suffix):], suffix) || strings.EqualFold(name, host) {
			return true
		}
	}
	return false
}

// servers are the declarations of a program, and the server that any other host is taken for.
type servers struct {
	declared   []*declaration
	undeclared profile.Server
}

// of returns the profile of the server that a request goes to, and whether the program has said
// that it honours keys.
func (s *servers) of(r *http.Request) (server *profile.Server, declared bool) {
	if r.URL != nil {
		for _, d := range slices.Backward(s.declared) {
			if d.names(r.URL) {
				return &d.server, true
			}
		}
	}
	return &s.undeclared, false
}

// hostOf returns the host that a request goes to.
func hostOf(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	return r.URL.Host
}

// maxRoutes is how many routes a transport remembers.
const maxRoutes = 4096

// routes are the routes that have shown that they honour keys. A server may protect one
// route and not its neighbour, so method and path belong to it.
type routes struct {
	mu    sync.Mutex
	known map[string]struct{}
}

func routeOf(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	return method(r) + " " + r.URL.Scheme + "://" + strings.ToLower(r.URL.Host) + r.URL.EscapedPath()
}

// learn remembers that a route honours keys. When there is no room left, it forgets any
// other, whose requests are then sent once in doubt.
func (k *routes) learn(route string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = make(map[string]struct{})
	}
	if _, ok := k.known[route]; !ok && len(k.known) >= maxRoutes {
		for other := range k.known {
			delete(k.known, other)
			break
		}
	}
	k.known[route] = struct{}{}
}

func (k *routes) has(route string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.known[route]
	return ok
}
