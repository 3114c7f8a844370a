package proxy

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"example.com/idempotency/problem"
)

// This file is about paths. A service may read one in another way than the router of net/http, and the rule of a
// request has to be that of the path that the service sees.

// inTarget are the bytes that a path or a query may have beside letters and digits (RFC 3986, sections 3.3 and 3.4).
const inTarget = "-._~!$&'()*+,;=:@/?%"

// spelled returns a path or a query of which each byte may stand in the request line. HTTP/2 lets clients send blanks,
// and with one a path ends there for some services: they would see another path than the proxy.
func spelled(s string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(inTarget, c) >= 0:
			out.WriteByte(c)
		default:
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	return out.String()
}

// readings returns the other paths for which services take a path: one that removes neither dot segments nor empty ones, one that
// decodes dots alone, and one that decodes everything. Those of Java take out what follows a semicolon, and some take a
// backslash for a slash. There are none for a path that all read alike.
func readings(u *url.URL) []string {
	path := u.EscapedPath()
	if !strings.ContainsAny(path, `%;\`) && !strings.Contains(path, "/.") && !strings.Contains(path, "//") {
		return nil
	}
	literal := segments(path, func(s string) string {
		if s == "." || s == ".." {
			return "..." // a name as any other
		}
		return s
	})
	for strings.Contains(literal, "//") {
		literal = strings.Replace(literal, "//", "/.../", 1)
	}
	bare := func(s string) string { s, _, _ = strings.Cut(s, ";"); return s }
	dots := segments(strings.NewReplacer("%2e", ".", "%2E", ".").Replace(path), bare)
	decoded := (&url.URL{Path: segments(strings.ReplaceAll(u.Path, `\`, "/"), bare)}).EscapedPath()
	return []string{literal, dots, decoded}
}

// segments returns a path with each of its segments as a function has it.
func segments(path string, as func(string) string) string {
	all := strings.Split(path, "/")
	for i, s := range all {
		all[i] = as(s)
	}
	return strings.Join(all, "/")
}

// of returns the rule of a request, and whether it is the same in all readings of the path. The router is asked for the
// pattern only: it would send clients elsewhere for a path that is not clean, and refuse methods.
func (t *table) of(r *http.Request) (found *rule, sure bool) {
	if len(t.rules) == 1 {
		return t.rules[everything], true
	}
	found = t.look(r, r.URL)
	for _, path := range readings(r.URL) {
		u, err := url.ParseRequestURI(path)
		if err != nil || t.look(r, u) != found {
			return found, false
		}
	}
	return found, true
}

// hostOf returns the name of a host as patterns have it: its case does not count, nor do a dot at its end and a port.
func hostOf(s string) string {
	name, _, _ := strings.Cut(s, ":")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// look returns the rule of a request with that path.
func (t *table) look(r *http.Request, u *url.URL) *rule {
	_, pattern := t.mux.Handler(&http.Request{Method: r.Method, Host: hostOf(r.Host), URL: u})
	if found := t.rules[pattern]; found != nil {
		return found
	}
	return t.rules[everything]
}

// refuseAmbiguous answers a request whose path has another rule in another reading. The most protected of these rules
// would be no way out: in the other reading the request is one of another route, whose records are other ones.
func refuseAmbiguous(w http.ResponseWriter) {
	w.Header().Set("Content-Type", problem.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = io.WriteString(w, `{"type":"about:blank","title":"Bad Request","status":400,"detail":"`+
		`Services read this path in different ways, and the rules for these differ. Send it without dot segments, `+
		`encoded dots or slashes, backslashes and semicolons. This request was not run."}`+"\n")
}
