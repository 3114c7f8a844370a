package conform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// This file makes requests from a template.

// ErrConfig is wrapped by errors about a [Config].
var ErrConfig = errors.New("conform")

// Unique is the placeholder in the body of a [Template]. A number stands in its place, the same one
// when a request is sent again and another one in each other request.
const Unique = "{{unique}}"

// A Template is the request that is sent in many ways.
type Template struct {
	Method, URL string
	Header      http.Header
	Body        string
}

func (t *Template) validate() error {
	u, err := url.Parse(t.URL)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("is not like http://127.0.0.1:8080/charges")
	}
	if err != nil {
		return fmt.Errorf("%w: the URL %q: %w", ErrConfig, t.URL, err)
	}
	if t.Method == "" {
		return fmt.Errorf("%w: there is no method", ErrConfig)
	}
	return nil
}

// field parses "Name: value".
func field(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, ":")
	if !ok || strings.TrimSpace(name) == "" {
		return "", "", fmt.Errorf("is %q, and must be like X-Tenant: acme", line)
	}
	return http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value), nil
}

// sameField reports whether two names are of one field.
func sameField(a, b string) bool { return http.CanonicalHeaderKey(a) == http.CanonicalHeaderKey(b) }

// A shot is a request before it is sent. Its methods return changed copies.
type shot struct {
	method, url string
	header      http.Header
	body        string
	keys        []string // the lines of the key's field
	note        string   // what a reader should know of it
	keep        int64    // how much of the answer is kept; 0 stands for maxKept
}

// shot returns a request with a number and a key.
func (t *Template) shot(unique int, keys ...string) shot {
	return shot{t.Method, t.URL, t.Header, strings.ReplaceAll(t.Body, Unique, strconv.Itoa(unique)), keys, "", 0}
}

func (s shot) key(lines ...string) shot { s.keys = lines; return s }
func (s shot) with(body string) shot    { s.body = body; return s }
func (s shot) noted(note string) shot   { s.note = note; return s }
func (s shot) by(method string) shot    { s.method = method; return s }
func (s shot) at(p func(*url.URL)) shot { u, _ := url.Parse(s.url); p(u); s.url = u.String(); return s }
func (s shot) set(name, to string) shot {
	s.header = cloned(s.header)
	s.header.Set(name, to)
	return s
}
func (s shot) without(name string) shot { s.header = cloned(s.header); s.header.Del(name); return s }

func cloned(h http.Header) http.Header {
	if h == nil {
		return http.Header{}
	}
	return maps.Clone(h)
}

// respelled returns the same JSON in another spelling, or false if it is no JSON.
func respelled(body string) (string, bool) {
	var out bytes.Buffer
	if json.Indent(&out, []byte(body), " ", "   ") != nil || strings.TrimSpace(body) == "" {
		return "", false
	}
	return "\n" + out.String(), true
}

// String says what is sent, without credentials.
func (s shot) String() string {
	var b strings.Builder
	u, _ := url.Parse(s.url)
	fmt.Fprintf(&b, "%s %s", s.method, u.RequestURI())
	for _, k := range s.keys {
		fmt.Fprintf(&b, ", key %s", clip(strconv.QuoteToASCII(k), 60))
	}
	if len(s.keys) == 0 {
		b.WriteString(", no key")
	}
	if s.body != "" {
		fmt.Fprintf(&b, ", body %s", clip(strconv.Quote(s.body), 100))
	}
	if s.note != "" {
		fmt.Fprintf(&b, " (%s)", s.note)
	}
	return b.String()
}

// clip shortens a text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
