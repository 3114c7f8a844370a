// Package remote asks the console of a service what operators want to know, and lets it decide.
package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/token"
)

// This file sends requests, and finds out whether what comes back is an answer of a console.

// Config says where a console is, and how it is asked. It has credentials in Header.
type Config struct {
	URL    string
	Header []string // "Name: value"
	CAFile string
	// Timeout is how long each answer may take.
	Timeout time.Duration
}

// A Client asks one console.
type Client struct {
	base    *url.URL
	header  http.Header
	timeout time.Duration
	http    *http.Client
}

// mostRead is how much of an answer is read: a thousand records are a fraction of it.
const mostRead = 16 << 20

// New returns a client. Its errors have no value of a field: that may be a secret.
func New(c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	switch {
	case err != nil: // without the URL, which may have a password
		return nil, errors.New("this is no URL: say https://HOST/PATH, where the console is")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("the URL must begin with https:// or http://, and a host")
	case base.User != nil:
		return nil, errors.New("the URL has a user: credentials go into --server-header or IDEM_SERVER_HEADER")
	case base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the URL must end with the path of the console, without ? and #")
	case c.Timeout <= 0:
		return nil, fmt.Errorf("--server-timeout is %v, and must be positive", c.Timeout)
	}
	base.Path, base.RawPath = strings.TrimSuffix(base.Path, "/")+"/", ""
	header, err := fields(c.Header)
	if err != nil {
		return nil, err
	}
	if len(header) > 0 && base.Scheme == "http" && !isLoopback(base.Hostname()) {
		return nil, errors.New("the fields of --server-header would go to another machine in plain text: use https")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file: %s has no certificate in PEM", c.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return &Client{base, header, c.Timeout, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// fields returns the header that lines say.
func fields(lines []string) (http.Header, error) {
	h := http.Header{}
	for n, line := range lines {
		name, value, isField := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !isField || !token.Is(name) || strings.ContainsFunc(value, unicode.IsControl):
			return nil, fmt.Errorf("number %d of --server-header, or of the lines of IDEM_SERVER_HEADER, must be like Authorization: Bearer TOKEN", n+1)
		case textproto.CanonicalMIMEHeaderKey(name) == "Accept":
			return nil, errors.New("the field Accept is not to be set by --server-header")
		}
		h.Add(name, value)
	}
	return h, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A call is a request. One that decides may have been carried out although no answer says so.
type call struct {
	path    string
	query   url.Values
	form    url.Values // nil of a GET
	decides bool
	lasts   time.Duration // for how long the service works on it
	seen    string        // what a decision is about
	actor   string        // who has asked, as the console has told with an error
	names   bool          // not found is what was named, and not the address
}

// An answer is what has come back from a console.
type answer struct {
	status   int
	location string
	body     []byte
}

// send sends a request, and returns what a console has answered. What is none is an error.
func (c *Client) send(ctx context.Context, to *call) (*answer, error) {
	u := *c.base
	u.Path += to.path
	u.RawQuery = to.query.Encode()
	ctx, cancel := context.WithTimeout(ctx, c.timeout+to.lasts)
	defer cancel()
	method, form := http.MethodGet, to.form.Encode()
	if to.form != nil {
		method = http.MethodPost
	}
	if len(form) > inspect.MostForm { // the console would hang up, and nobody knew why
		return nil, &Error{Code: inspect.ExitUsage, says: fmt.Sprintf("the answer is larger than the console takes, %d MiB as a form, in which most bytes that are no letters are three: decide by Guard.Resolve in the service", inspect.MostForm>>20)}
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	for name, values := range c.header {
		if r.Header[name] = values; name == "Host" {
			r.Host = values[0]
		}
	}
	r.Header.Set("Accept", "application/json")
	if to.form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	got, err := c.http.Do(r)
	if err != nil {
		return nil, &Error{Code: inspect.ExitUnreachable, says: "the service cannot be reached: " + reason(err)}
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(got.Body, mostRead+1))
	switch {
	case err != nil:
		return nil, &Error{Code: inspect.ExitUnreachable, says: "the answer of the service broke off: " + reason(err)}
	case got.Header.Get(inspect.ConsoleHeader) == "":
		return nil, foreign(got, text, to)
	case got.Header.Get(inspect.ConsoleHeader) != inspect.ConsoleForm:
		return nil, to.unsure(got.StatusCode, fmt.Sprintf("the console speaks form %.20q, and this idem speaks form %s: use the idem of the service's version",
			got.Header.Get(inspect.ConsoleHeader), inspect.ConsoleForm))
	case len(text) > mostRead:
		return nil, to.unsure(got.StatusCode, fmt.Sprintf("the answer of the service is larger than %d MiB", mostRead>>20))
	}
	return &answer{got.StatusCode, got.Header.Get("Location"), text}, nil
}

// reason says why no answer came, without the address, which the operator has given.
func reason(err error) string {
	if of, ok := errors.AsType[net.Error](err); ok && of.Timeout() {
		return "no answer in time"
	}
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return err.Error() + ": name the certificates of its authority by --ca-file"
	}
	return err.Error()
}

// do sends a request, and reads the answer into an object of a type.
func (c *Client) do(ctx context.Context, to *call, kind string, into any) error {
	got, err := c.send(ctx, to)
	if err != nil {
		return err
	}
	if got.status != http.StatusOK {
		return refusal(got, to)
	}
	var is struct{ Type string }
	if err := json.Unmarshal(got.body, &is); err != nil || is.Type != kind || json.Unmarshal(got.body, into) != nil {
		return to.unsure(got.status, fmt.Sprintf("the console answers %s with something else than %q: it may be of another version than this idem", to.path, kind))
	}
	return nil
}

// foreign says what an answer is that is not one of a console.
func foreign(got *http.Response, text []byte, to *call) error {
	kind, _, _ := mime.ParseMediaType(got.Header.Get("Content-Type"))
	what := fmt.Sprintf("status %d", got.StatusCode)
	if word := http.StatusText(got.StatusCode); word != "" {
		what += " " + word
	}
	switch {
	case kind == "text/html" || bytes.HasPrefix(bytes.ToLower(bytes.TrimSpace(text)), []byte("<!doctype html")):
		what += ", a page of HTML"
	case kind != "":
		what += ", " + kind
	}
	if where, err := got.Location(); err == nil {
		what += ", which leads to " + (&url.URL{Scheme: where.Scheme, Host: where.Host, Path: where.Path}).String() + " and is not followed"
	}
	says := "what answers is no console, but says " + what + ". "
	switch status := got.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired:
		says += signIn
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		says += "Is the path of the console right, with the part that the service has mounted it at?"
	case status >= 500:
		says += "Something in front of the service, or the service, has failed. Try again."
	default:
		says += "It may be a page to sign in at, in front of the service. " + signIn
	}
	return to.unsure(got.StatusCode, says)
}

const signIn = "Give the credentials of a program, by --server-header or IDEM_SERVER_HEADER."

// unsure returns an error about an answer that is none of a console. Where the request may have been carried out, or may be
// when it is tried again, it says that the service is unreachable.
func (to *call) unsure(status int, says string) error {
	code := inspect.ExitError
	if status >= 500 || to.decides && status < 300 {
		code = inspect.ExitUnreachable
	}
	return &Error{Code: code, says: says}
}
