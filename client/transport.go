package client

import "net/http"

// This file makes the RoundTripper. What it does with a request begins in round_trip.go.

// A Transport sends each request with one idempotency key, however often it has to be
// sent. It is an http.RoundTripper on top of another one, for use in an http.Client:
//
//	transport, err := client.New(nil, client.WithServer(profile.Guard(), "payments.example.com"))
//	c := &http.Client{Transport: transport}
//
// Requests with the methods of [WithMethods] get a key unless the caller has given one, in
// the header field or by [WithKey].
//
// A request that was surely not executed is sent again. After an attempt that may have been
// executed, a request is sent again only if that cannot be a second effect: its server honours
// keys, because the program says so ([WithServer]) or because an earlier answer of the route
// has shown it, or its method is idempotent by definition. A request without a key is sent
// again only if its method is idempotent and its body can be sent twice.
//
// A request with a key ends in the answer or in an [*Error]. Other requests end as without
// a Transport, with the last answer or the last error.
//
// Do not set the Timeout of the http.Client: when it expires, the client replaces the
// error, and the key in it is lost. Use [WithTimeout] or the context of the request.
//
// A Transport is safe for concurrent use. It starts a goroutine only to read a body without
// GetBody, which ends when that Read does.
type Transport struct {
	base    http.RoundTripper
	set     settings
	budgets budgets
	routes  routes
}

// New returns a transport on top of base, or of http.DefaultTransport if base is nil. Base
// may be any RoundTripper; for one that retries by itself, set [WithAttempts] to 1. All
// mistakes in the options are reported at once.
func New(base http.RoundTripper, opts ...Option) (*Transport, error) {
	set, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &Transport{base: base, set: set, budgets: budgets{ratio: set.budgetRatio, reserve: float64(set.budgetReserve)}}, nil
}

// CloseIdleConnections closes those of base, if it has the method, as http.Client expects.
func (t *Transport) CloseIdleConnections() { closeIdleConnections(t.base) }
