package console

import (
	"errors"
	"net"
	"net/http"
	"net/url"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

// This file says who gets in, and what a browser may do with what it gets.

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
		inspect.ConsoleHeader: inspect.ConsoleForm,
	} {
		h.Set(name, value)
	}
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
