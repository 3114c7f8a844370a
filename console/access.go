package console

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"

	"example.com/idempotency"
)

// This file says who gets in, by which addresses, and what a browser may do with what it gets.

// setHeader forbids a browser everything but to show a page, to load its style sheet and to send its forms back.
//
// The policy for referrers is not no-referrer: with that, a browser would name no origin with a form, and
// without HTTPS nothing else tells that the form is one of ours.
func setHeader(h http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
			"base-uri 'none'; frame-ancestors 'none'",
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Vary": "Accept",
	} {
		h.Set(name, value)
	}
}

// find returns the screen that the address of a request ends with, and the name at its end. An empty screen is the
// first one, whose address lacks the slash at its end: the prefix was stripped, or the router has the console there.
func find(r *http.Request) (page, name string, found bool) {
	u := r.URL
	if u.Path == "" {
		return "", "", true
	}
	if u.RawPath != "" || strings.Contains(u.Path, "//") || strings.TrimSuffix(path.Clean(u.Path), "/") != strings.TrimSuffix(u.Path, "/") {
		return "/", "", false // nobody is led here by a link
	}
	dir, last := path.Split(u.Path)
	if path.Base(dir) == "records" && last != "" {
		return "records", last, true
	}
	if last == "" {
		return "/", "", true
	}
	_, known := screens[last]
	known = known && last != "records"
	if !known && (r.Pattern == u.Path || strings.HasSuffix(r.Pattern, " "+u.Path)) {
		return "", "", true
	}
	return last, last, known
}

var errNotHere = errors.New("console: without Options.Authorize, only a browser on the same machine may look")

// OnThisMachine lets in whoever is on the same machine, as nobody who may only look. It refuses a request that was
// forwarded by a proxy, or that was not addressed to localhost or a loopback address: a page of another site could
// have given a name of its own to this machine. It is what a console without [Options].Authorize asks. A function
// for development can call it, and let the actor decide.
//
// It knows a proxy by the fields that proxies add, and by HTTP/1.0, which no browser speaks. A proxy on the same
// machine that does neither is taken for a browser: do not put one in front of such a console.
func OnThisMachine(r *http.Request) (Actor, error) {
	for _, field := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(field) != "" {
			return Actor{}, errNotHere
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return Actor{}, errNotHere
	}
	client, _, err := net.SplitHostPort(r.RemoteAddr)
	host := (&url.URL{Host: r.Host}).Hostname()
	if ip := net.ParseIP(client); err != nil || ip == nil || !ip.IsLoopback() || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return Actor{}, errNotHere
	}
	return Actor{}, nil
}

// unauthorized returns what a request gets that Authorize refuses. The error of the program is not shown.
func unauthorized(err error) *problem {
	switch {
	case errors.Is(err, idempotency.ErrUnauthenticated):
		return &problem{status: http.StatusUnauthorized, says: "Sign in to see this console.", err: err}
	case errors.Is(err, idempotency.ErrTryLater):
		return &problem{status: http.StatusServiceUnavailable, says: "Nobody can tell at present who you are. Try again.", err: err}
	case errors.Is(err, errNotHere):
		return &problem{status: http.StatusForbidden, says: "This console is not set up for you: without a rule of who may see it, only a browser on the same machine does.", err: err}
	}
	return &problem{status: http.StatusForbidden, says: "You may not see this console.", err: err}
}

// serve shows a screen, or does what its form asks for.
func (v *visit) serve(s screen, name string) {
	do := s.get
	switch v.r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		if err := v.origin.Check(v.r); err != nil {
			v.fail(&problem{status: http.StatusForbidden, says: "The form was sent by another site, and nothing was done.", err: err})
			return
		}
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
		do = s.post
		if err := v.r.ParseForm(); do != nil && err != nil {
			v.fail(unreadableForm(err))
			return
		}
	default:
		do = nil
	}
	if do == nil {
		allow := "GET, HEAD"
		if s.post != nil {
			allow += ", POST"
		}
		v.w.Header().Set("Allow", allow)
		v.fail(&problem{status: http.StatusMethodNotAllowed, says: "This page is only shown, and not written to."})
		return
	}
	if err := do(v, name); err != nil {
		v.fail(err)
	}
}

// maxForm is how large a form may be, with the answer that it may bring.
const maxForm = 4 << 20

func unreadableForm(err error) *problem {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return &problem{status: http.StatusRequestEntityTooLarge, says: "The form is larger than 4 MiB. Decide by Guard.Resolve in the service.", err: err}
	}
	return &problem{status: http.StatusBadRequest, says: "The form cannot be read.", err: err}
}
