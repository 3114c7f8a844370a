package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

// A server that ignores keys has an effect for each request that reaches it, so that a
// request that may have been executed is not sent again.
func TestServerThatIgnoresKeysHasOneEffect(t *testing.T) {
	for name, a := range map[string]answer{
		"reset":   {err: errReset},
		"timeout": {err: io.ErrUnexpectedEOF},
		"500":     {status: 500},
		"499":     {status: 499, header: map[string]string{"Retry-After": "0"}},
		"408":     {status: 408, header: map[string]string{"Retry-After": "0"}},
		"502":     {status: 502},
		"503":     {status: 503, header: map[string]string{"Retry-After": "0"}},
		"409":     {status: 409, header: map[string]string{"Retry-After": "0"}},
	} {
		for body, r := range map[string]*http.Request{
			"body": post(t.Context(), place, "{}"), "none": request(t.Context(), http.MethodPost, place, http.NoBody),
			"chosen key": post(client.WithKey(t.Context(), "k"), place, "{}"),
		} {
			base := answering(a, answer{status: 201})
			err := failsWith(t, newStranger(t, base, quick), r, client.ErrOutcomeUnknown, "%s, %s", name, body)
			require.Equal(t, client.ReasonUnproven, failure(t, err).Reason)
			require.NotEmpty(t, failure(t, err).Key)
			base.requireOneKey(t, 1)
		}
	}
}

// A request that was surely not executed is sent again to any server.
func TestNotExecutedIsSentAgainToAnyServer(t *testing.T) {
	for name, a := range map[string]answer{
		"429":               {status: 429},
		"425":               {status: 425},
		"store-unavailable": refused(503, "store-unavailable"),
		"dial":              {err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}},
	} {
		base := answering(a, answer{status: 201})
		var transport http.RoundTripper = newStranger(t, base, quick)
		if a.err != nil {
			transport = newStranger(t, client.AsSingleTrip(base), quick)
		}
		got, err := send(transport, post(t.Context(), place, "{}"))
		require.NoError(t, err, name)
		require.Equal(t, 201, got.status)
		base.requireOneKey(t, 2)
	}
	// An idempotent method is safe at any server.
	base := answering(answer{err: errReset}, answer{status: 201})
	answered(t, newStranger(t, base, quick), request(client.WithKey(t.Context(), "k"), http.MethodPut, place, strings.NewReader("{}")))
	base.requireOneKey(t, 2)
}

// A route that has shown that it honours keys is trusted, and its neighbours are not.
func TestRouteShowsThatItHonoursKeys(t *testing.T) {
	var lose atomic.Bool
	plain := newBase(t)
	base := client.AsSingleTrip(roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := plain.RoundTrip(r)
		if err == nil && lose.CompareAndSwap(true, false) {
			_ = resp.Body.Close()
			return nil, errReset
		}
		return resp, err
	}))
	effects := make(map[string]int)
	var mu sync.Mutex
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		effects[r.URL.Path]++
		w.WriteHeader(http.StatusCreated)
	})
	mux := http.NewServeMux()
	mux.Handle("/guarded", newGuard(t, idempotency.NewMemoryStore()).Handler(h))
	mux.Handle("/", h)
	s := serve(t, mux)
	transport := newStranger(t, base, quick)
	try := func(path string) error {
		_, err := send(transport, post(t.Context(), s.URL+path, "{}"))
		return err
	}
	lose.Store(true)
	require.ErrorIs(t, try("/guarded"), client.ErrOutcomeUnknown, "nothing is known of the route")
	require.NoError(t, try("/guarded"))
	lose.Store(true)
	require.NoError(t, try("/guarded"), "it has repeated a key")
	require.NoError(t, try("/open"))
	lose.Store(true)
	require.ErrorIs(t, try("/open"), client.ErrOutcomeUnknown, "a neighbour has shown nothing")
	lose.Store(true)
	require.ErrorIs(t, try("/guarded/other"), client.ErrOutcomeUnknown)
	require.Equal(t, map[string]int{"/guarded": 3, "/open": 2, "/guarded/other": 1}, effects)

	// In the same call, too: the refusal of a guard proves that there is one.
	one := answering(refused(409, "in-flight"), answer{err: errReset}, answer{status: 201})
	require.Equal(t, 201, answered(t, newStranger(t, one, quick), post(t.Context(), place, "{}")).status)
}

// An http.Transport sends a request with the field Idempotency-Key again by itself when an
// old connection breaks, which is a second effect at a server that ignores keys.
func TestBaseDoesNotRepeatByItselfEither(t *testing.T) {
	direct := func(base *http.Transport) http.RoundTripper { return base }
	for name, c := range map[string]struct {
		declared []client.Option
		wrap     func(*http.Transport) http.RoundTripper
		field    string // another one that an http.Transport takes for a promise
	}{
		"declared":          {[]client.Option{client.WithServer(profile.Guard(), "127.0.0.1")}, direct, ""},
		"stranger":          {nil, direct, ""},
		"stranger, wrapped": {nil, func(base *http.Transport) http.RoundTripper { return roundTripper(base.RoundTrip) }, ""},
		"stranger, single":  {nil, func(base *http.Transport) http.RoundTripper { return client.AsSingleTrip(base) }, ""},
		"two fields":        {nil, direct, "X-Idempotency-Key"},
	} {
		for _, body := range []string{"", "{}"} {
			var effects atomic.Int64
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					return
				}
				if effects.Add(1) == 1 {
					panic(http.ErrAbortHandler) // executed, and the connection breaks
				}
				w.WriteHeader(http.StatusCreated)
			}))
			transport := newStranger(t, c.wrap(newBase(t)), append(c.declared, quick)...)
			_, err := send(transport, request(t.Context(), http.MethodGet, s.URL, http.NoBody)) // the connection is an old one
			require.NoError(t, err)
			reused := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = reused || i.Reused }})
			r := request(ctx, http.MethodPost, s.URL, strings.NewReader(body))
			if c.field != "" {
				r.Header.Set(c.field, "k")
			}
			_, err = send(transport, r)
			require.True(t, reused)
			if name == "declared" {
				require.NoError(t, err)
				require.EqualValues(t, 2, effects.Load(), "%s, %q", name, body)
				continue
			}
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
			require.EqualValues(t, 1, effects.Load(), "%s, %q", name, body)
		}
	}
}

// A connection that has died in the pool has sent nothing, so that the request is sent again
// to any server, as an http.Transport does with requests of any kind.
func TestDeadConnectionOfThePoolHasSentNothing(t *testing.T) {
	for _, body := range []string{"", "{}", strings.Repeat("x", 2000)} {
		var effects atomic.Int64
		s := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
				effects.Add(1)
			}
		}))
		var dead atomic.Bool
		base := newBase(t)
		base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &mortal{Conn: conn, dead: &dead}, err
		}
		transport := newStranger(t, base, quick)
		answered(t, transport, request(t.Context(), http.MethodGet, s.URL, http.NoBody))
		dead.Store(true)
		_, err := send(transport, request(t.Context(), http.MethodPost, s.URL, strings.NewReader(body)))
		require.NoError(t, err, "%d bytes", len(body))
		require.EqualValues(t, 1, effects.Load())
		require.False(t, dead.Load())
	}
}

// A mortal connection fails at its next Write after its death, once.
type mortal struct {
	net.Conn
	dead *atomic.Bool
}

func (m *mortal) Write(p []byte) (int, error) {
	if m.dead.CompareAndSwap(true, false) {
		return 0, errReset
	}
	return m.Conn.Write(p)
}

func TestHostsOfADeclaration(t *testing.T) {
	for _, c := range []struct {
		host, url string
		want      bool
	}{
		{"*", "http://any.test/", true},
		{"pay.test", "http://pay.test/", true},
		{"pay.test", "http://PAY.test:8080/", true},
		{"pay.test:8080", "http://pay.test:8080/", true},
		{"pay.test:8080", "http://pay.test/", false},
		{"pay.test", "http://other.test/", false},
		{"pay.test", "http://api.pay.test/", false},
		{"*.pay.test", "http://api.pay.test/", true},
		{"*.pay.test", "http://eu.api.pay.test/", true},
		{"*.pay.test", "http://pay.test/", false},
		{"*.pay.test", "http://evilpay.test/", false},
		{"127.0.0.1", "http://127.0.0.1:80/", true},
		{"::1", "http://[::1]/", true},
		{"[::1]:80", "http://[::1]:80/", true},
		{"[::1]:80", "http://[::1]/", true},
		{"[::1]", "http://[::1]:80/", true},
		{"pay.test:443", "https://pay.test/", true},
		{"pay.test:443", "http://pay.test/", false},
		{"*.pay.test:443", "https://api.pay.test/", true},
	} {
		base := answering(answer{status: 502}, answer{status: 201})
		_, err := send(newStranger(t, base, quick, client.WithServer(profile.Guard(), "unused.test", c.host)), post(t.Context(), c.url, "{}"))
		require.Equal(t, c.want, err == nil, "%s, %s", c.host, c.url)
	}
}

func TestDeclarationsThatAreInvalid(t *testing.T) {
	broken := profile.Guard()
	broken.KeyHeader = "a b"
	nowhere := profile.Guard()
	nowhere.KeyHeader = ""
	for name, o := range map[string]client.Option{
		"has no host":             client.WithServer(profile.Guard()),
		`"" is not a host`:        client.WithServer(profile.Guard(), ""),
		`"http://a" is not a`:     client.WithServer(profile.Guard(), "http://a"),
		`"a.*" is not a host`:     client.WithServer(profile.Guard(), "a.*"),
		`":443" is not a host`:    client.WithServer(profile.Guard(), ":443"),
		`"*.:443" is not a host`:  client.WithServer(profile.Guard(), "*.:443"),
		`"a.test:" is not a host`: client.WithServer(profile.Guard(), "a.test:"),
		`"u@a.test" is not a`:     client.WithServer(profile.Guard(), "u@a.test"),
		`"a.test?x" is not a`:     client.WithServer(profile.Guard(), "a.test?x"),
		`"[::1" is not a host`:    client.WithServer(profile.Guard(), "[::1"),
		`"a b" is not a field`:    client.WithServer(broken, "*"),
		"either KeyHeader or":     client.WithServer(nowhere, "*"),
		"rule 1 matches every":    client.WithServer(profile.Server{KeyHeader: "K", Rules: []profile.Rule{{Means: profile.Own}}}, "*"),
		"TTL -1ns is shorter":     client.WithServer(profile.Server{KeyHeader: "K", TTL: -1}, "*"),
		"TTL 24ns is shorter":     client.WithServer(profile.Server{KeyHeader: "K", TTL: 24}, "*"),
		"Replayed: \"\\n\" is no": client.WithServer(profile.Server{KeyHeader: "K", Replayed: profile.Field{Name: "\n"}}, "*"),
	} {
		_, err := client.New(nil, o)
		require.ErrorContains(t, err, name)
	}
}

// A number without its unit is nanoseconds.
func TestTooShortForAnyServer(t *testing.T) {
	for name, o := range map[string]client.Option{
		"WithTTL: 24ns is shorter than a second":                 client.WithTTL(24),
		"WithTimeout: 60ns is shorter than a millisecond":        client.WithTimeout(60),
		"WithAttemptTimeout: 30ns is shorter than a millisecond": client.WithAttemptTimeout(30),
	} {
		_, err := client.New(nil, o)
		require.ErrorContains(t, err, name)
	}
}

// Of two declarations, the last one that names a host counts; each host has its own field.
func TestEachHostHasItsOwnProfile(t *testing.T) {
	var fields []string
	base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
		for _, name := range []string{keyField, "Paypal-Request-Id"} {
			if r.Header.Get(name) != "" {
				fields = append(fields, r.URL.Host+" "+name)
			}
		}
		return answer{status: 201}.response(r), nil
	}})
	transport := newStranger(t, base, client.WithServer(profile.Guard(), "*"), client.WithServer(profile.PayPal(), "*.paypal.test"))
	for _, host := range []string{"shop.test", "api.paypal.test"} {
		answered(t, transport, post(t.Context(), "http://"+host+"/", "{}"))
	}
	require.Equal(t, []string{"shop.test " + keyField, "api.paypal.test Paypal-Request-Id"}, fields)
}

// The transport remembers a bounded number of routes and of budgets.
func TestManyRoutes(t *testing.T) {
	base := answering(answer{status: 201, header: map[string]string{keyField: "k"}})
	transport := newStranger(t, base)
	for i := range 5000 {
		answered(t, transport, post(client.WithKey(t.Context(), "k"), fmt.Sprintf("http://host%d.test/%d", i, i), "{}"))
	}
	routes, budgets := client.Remembered(transport)
	require.Equal(t, 4096, routes)
	require.Equal(t, 1024, budgets)
}

// A key in the body is the program's; without it, the request has none.
func TestKeyInTheBody(t *testing.T) {
	square := client.WithServer(profile.Square(), "*")
	for body, attempts := range map[string]int{
		`{"idempotency_key":"k","amount":1}`: 2, `{"amount":1}`: 1, `{"idempotency_key":7}`: 1, `[1]`: 1, `{`: 1,
	} {
		base := answering(answer{err: errReset}, answer{status: 200})
		_, err := send(newStranger(t, base, square, quick), request(t.Context(), http.MethodPost, place, once(body)))
		require.Len(t, base.requests(), attempts, body)
		for _, r := range base.requests() {
			require.Empty(t, r.key)
			require.Equal(t, body, r.body)
		}
		require.Equal(t, attempts == 1, errors.Is(err, errReset), body)
	}
	base := answering(answer{err: errReset})
	_, err := send(newStranger(t, base, square, quick), post(client.WithKey(t.Context(), "k"), place, `{"idempotency_key":"k"}`))
	require.Equal(t, "k", failure(t, err).Key)
	fails(t, newStranger(t, base, square, quick), post(client.WithKey(t.Context(), "other"), place, `{"idempotency_key":"k"}`), client.ErrKeyInvalid)
}
