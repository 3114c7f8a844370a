package client_test

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

// This file plays random fates: a server of each vendor, a proxy in front of it that answers
// in its place, and a network that loses requests and answers.

// A fateful server is a RoundTripper with a vendor's server behind a proxy and a network.
type fateful struct {
	d           *dice
	v           vendor
	ignoresKeys bool
	valid       bool // the request is one that the server executes

	effects  int
	executed bool
	flying   int // how many more requests find the first one in flight
}

// proxyStatuses are those that a proxy answers with by itself.
var proxyStatuses = []int{302, 303, 307, 400, 401, 403, 404, 405, 407, 408, 409, 413, 422, 423, 425, 429, 431, 499, 500, 501, 502, 503, 504, 505, 506, 510, 511}

func (f *fateful) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case f.d.percent(10):
		return nil, errReset // before it arrives
	case f.d.percent(25):
		f.d.mu.Lock()
		status := proxyStatuses[f.d.rng.IntN(len(proxyStatuses))]
		f.d.mu.Unlock()
		return answer{status: status, header: map[string]string{"Content-Type": "text/html", "Location": "/login"}, body: "<html>"}.response(r), nil
	}
	a := f.serve()
	switch {
	case f.d.percent(15):
		return nil, errReset // the answer is lost
	case f.d.percent(10):
		return answer{status: 502, body: "<html>"}.response(r), nil
	}
	return a.response(r), nil
}

// serve is the vendor's server.
func (f *fateful) serve() answer {
	switch {
	case !f.valid:
		return f.v.invalid
	case f.ignoresKeys:
		f.effects++
		return answer{status: 201}
	case f.flying > 0 && f.v.inFlight.status > 0:
		f.flying--
		return f.v.inFlight
	case f.executed:
		return f.v.replayed
	case f.d.percent(15):
		return f.broken(500, 501, 505) // before the effect
	}
	f.effects++
	f.executed = true
	if f.d.percent(30) {
		f.d.mu.Lock()
		f.flying = f.d.rng.IntN(3)
		f.d.mu.Unlock()
		return f.broken(408, 500, 504) // of a gateway that has not waited
	}
	fresh := f.v.replayed
	if fresh.status >= 300 {
		return jsonAnswer(201, created)
	}
	fresh.header = maps.Clone(fresh.header)
	delete(fresh.header, "Idempotent-Replayed")
	return fresh
}

// broken is an error of the server, with any of some statuses.
func (f *fateful) broken(statuses ...int) answer {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return withStatus(statuses[f.d.rng.IntN(len(statuses))], f.v)
}

// again says the key of an error once more, in any of the ways that there are. Another process has
// another transport, and knows no more than that the key may have been sent.
func (f *fateful) again(e *client.Error, here, there *client.Transport) (*client.Transport, func(*http.Request) *http.Request) {
	f.d.mu.Lock()
	way := f.d.rng.IntN(4)
	f.d.mu.Unlock()
	if way == 3 {
		here = there
	}
	return here, func(r *http.Request) *http.Request {
		ctx := e.Context(r.Context())
		switch way {
		case 1:
			ctx = client.WithKey(ctx, e.Key)
		case 2:
			r.Header.Set(cmp.Or(f.v.profile.KeyHeader, keyField), e.Key)
		case 3:
			ctx = client.Intent{Key: e.Key, Resumed: true}.Context(r.Context())
		}
		return r.WithContext(ctx)
	}
}

// Whatever happens, there is one effect at most, and the caller is told nothing that is not
// so. With the key of an error, the answer can be had later, and then nothing is unknown.
func TestTruthUnderRandomFates(t *testing.T) {
	t.Parallel()
	runs := 300
	if exhaustive {
		runs = 10_000
	}
	d := newDice(t)
	for _, v := range vendors {
		for name, opts := range map[string][]client.Option{"declared": {client.WithServer(v.profile, "*")}, "stranger": nil} {
			told := make(map[string]int)
			for range runs {
				f := &fateful{d: d, v: v, valid: d.percent(80), ignoresKeys: opts == nil && d.percent(50)}
				if opts == nil && v.profile.KeyMember != "" {
					f.ignoresKeys = true // the body is nothing that a stranger looks into
				}
				synctest.Test(t, func(t *testing.T) {
					transport := newStranger(t, f, opts...)
					say := func(r *http.Request) *http.Request { return r.WithContext(client.WithKey(t.Context(), "k")) }
					for range 30 {
						got, err := send(transport, say(post(t.Context(), place, `{"amount":1,"idempotency_key":"k"}`)))
						requireAgreement(t, got, err, f.effects)
						var e *client.Error
						switch {
						case err == nil:
							told["answered"]++
							return
						case !errors.Is(err, client.ErrOutcomeUnknown):
							told["refused or not executed"]++
							return
						case f.ignoresKeys:
							told["unknown"]++
							return // only somebody who looks can tell
						}
						require.ErrorAs(t, err, &e)
						transport, say = f.again(e, transport, newStranger(t, f, opts...))
					}
					told["unknown"]++
				})
			}
			t.Logf("%s, %s: %v", v.profile.Name, name, told)
			require.Positive(t, told["answered"])
		}
	}
}
