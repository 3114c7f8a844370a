package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

func TestNewKeyIsARandomUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for range 1000 {
		key := client.NewKey()
		require.Regexp(t, form, key)
		require.False(t, seen[key])
		seen[key] = true
	}
}

// These keys are stored at servers, for days. They never change.
func TestIntentForIsForever(t *testing.T) {
	for _, golden := range []struct {
		key   string
		parts []string
	}{
		{"dEfoy7hsJ6Vbbgk6xhliYgg3pTFqG6VHBFgbO_zCvX8", []string{"charge"}},
		{"iRvjZ_sshY_UszW-u4SH4XhJkwaX3Dz-R08k8GhUT0A", []string{"charge", "order-17"}},
		{"lo_JSowGuPbRwzVx5ud8DZDieAfmwFXDGO3V0o2er8M", []string{"charge", "order-17", "2"}},
		{"4m3A3lpEkrP6lhFqJHK3FSRrfOYQIYKthhunCCc526k", []string{"", "", ""}},
		{"K_RBUkdqYRrriwPf7byD1so-CVC3n23k1dKMpRTV_zk", []string{"zahlen", "Bestellung \u00e4\x00\xff"}},
	} {
		require.Equal(t, golden.key, client.IntentFor(golden.parts[0], golden.parts[1:]...).Key, "%q", golden.parts)
	}
}

func TestIntentForTellsPartsApart(t *testing.T) {
	seen := make(map[string][]string)
	for _, parts := range [][]string{
		{"ab", "c"},
		{"a", "bc"},
		{"abc"},
		{"a", "b", "c"},
		{"abc", ""},
		{"", "abc"},
		{"ab\x01c"},
		{"ab", "\x01c"},
		{"a\x02bc"},
		{"charge", "1"},
		{"refund", "1"},
		{""},
		{"", ""},
	} {
		key := client.IntentFor(parts[0], parts[1:]...).Key
		require.Empty(t, seen[key], "the key of %q", parts)
		require.Len(t, key, 43)
		seen[key] = parts
	}
}

func TestWhichKey(t *testing.T) {
	set := func(name, value string) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request { r.Header.Set(name, value); return r }
	}
	with := func(key string) func(*http.Request) *http.Request {
		return func(r *http.Request) *http.Request { return r.WithContext(client.WithKey(r.Context(), key)) }
	}
	without := func(r *http.Request) *http.Request { return r.WithContext(client.WithoutKey(r.Context())) }
	for name, c := range map[string]struct {
		method  string
		prepare []func(*http.Request) *http.Request
		opts    []client.Option
		want    string // "" is none, "*" a random one
		field   string
	}{
		"post":                      {method: "POST", want: "*"},
		"patch":                     {method: "PATCH", want: "*"},
		"put":                       {method: "PUT"},
		"delete":                    {method: "DELETE"},
		"get":                       {method: "GET"},
		"get, short":                {method: ""},
		"put that is chosen":        {method: "PUT", opts: []client.Option{client.WithMethods("PUT")}, want: "*"},
		"post that is not chosen":   {method: "POST", opts: []client.Option{client.WithMethods()}},
		"header":                    {method: "POST", prepare: []func(*http.Request) *http.Request{set(keyField, "mine")}, want: "mine"},
		"header of a get":           {method: "GET", prepare: []func(*http.Request) *http.Request{set(keyField, "mine")}, want: "mine"},
		"header stays as it is":     {method: "POST", prepare: []func(*http.Request) *http.Request{set(keyField, "m;1")}, opts: []client.Option{client.WithStrictKeys(true)}, want: "m;1"},
		"header before context":     {method: "POST", prepare: []func(*http.Request) *http.Request{set(keyField, "mine"), with("other")}, want: "mine"},
		"context":                   {method: "POST", prepare: []func(*http.Request) *http.Request{with("mine")}, want: "mine"},
		"context, quoted":           {method: "POST", prepare: []func(*http.Request) *http.Request{with(`"m,ine"`)}, want: `"m,ine"`},
		"context of a put":          {method: "PUT", prepare: []func(*http.Request) *http.Request{with("mine")}, want: "mine"},
		"context of a get":          {method: "GET", prepare: []func(*http.Request) *http.Request{with("mine")}},
		"without":                   {method: "POST", prepare: []func(*http.Request) *http.Request{without}},
		"without, but in the field": {method: "POST", prepare: []func(*http.Request) *http.Request{without, set(keyField, "mine")}, want: "mine"},
		"strict":                    {method: "POST", prepare: []func(*http.Request) *http.Request{with(`m\ine`)}, opts: []client.Option{client.WithStrictKeys(true)}, want: `"m\\ine"`},
		"strict and quoted":         {method: "POST", prepare: []func(*http.Request) *http.Request{with(`"mine"`)}, opts: []client.Option{client.WithStrictKeys(true)}, want: `"mine"`},
		"header in lower case": {method: "POST", prepare: []func(*http.Request) *http.Request{func(r *http.Request) *http.Request {
			r.Header["idempotency-key"] = []string{"mine"}
			return r
		}}, want: "mine"},
		"other field": {method: "POST", opts: []client.Option{client.WithServer(profile.Server{KeyHeader: "x-request-key"}, "*")}, field: "X-Request-Key", want: "*"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.field == "" {
				c.field = keyField
			}
			var got []string
			base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
				got = r.Header[c.field]
				for name := range r.Header {
					require.True(t, name == c.field || !strings.EqualFold(name, c.field), name)
				}
				return answer{status: 200}.response(r), nil
			}})
			r := request(t.Context(), c.method, place, http.NoBody)
			r.Method = c.method
			for _, f := range c.prepare {
				r = f(r)
			}
			before := fmt.Sprint(r.Header)
			answered(t, newStranger(t, base, c.opts...), r)
			require.Equal(t, before, fmt.Sprint(r.Header), "the caller's request was changed")
			switch c.want {
			case "":
				require.Empty(t, got)
			case "*":
				require.Len(t, got, 1)
				require.Len(t, got[0], 36)
			default:
				require.Equal(t, []string{c.want}, got)
			}
		})
	}
}

func TestKeysThatCannotBeSentAreRefused(t *testing.T) {
	for _, key := range []string{"", " ", "a,b", "a;b", "k\u00e4se", `"half`, fmt.Sprintf("%0256d", 1)} {
		base := answering(answer{status: 200})
		r := post(client.WithKey(t.Context(), key), place, "{}")
		fails(t, newTransport(t, base), r, client.ErrKeyInvalid, "%q", key)
		require.Empty(t, base.requests())
	}
	for _, values := range [][]string{{}, {""}, {"a", "b"}} {
		base := answering(answer{status: 200})
		r := post(t.Context(), place, "{}")
		r.Header[keyField] = values
		fails(t, newTransport(t, base), r, client.ErrKeyInvalid, "%q", values)
		require.Empty(t, base.requests())
	}
}

// The request that http.Client makes of a redirect that keeps the method is the same one.
func TestRedirectKeepsTheKey(t *testing.T) {
	for status, want := range map[int]int{http.StatusTemporaryRedirect: 1, http.StatusPermanentRedirect: 1, http.StatusSeeOther: 0, -http.StatusSeeOther: 0} {
		given := status < 0 // by the caller, in the header
		status = max(status, -status)
		var first string
		var second []string
		mux := http.NewServeMux()
		mux.HandleFunc("/old", func(w http.ResponseWriter, r *http.Request) {
			first = r.Header.Get(keyField)
			http.Redirect(w, r, "/new", status)
		})
		mux.HandleFunc("/new", func(_ http.ResponseWriter, r *http.Request) { second = r.Header[keyField] })
		s := serve(t, mux)
		c := &http.Client{Transport: newTransport(t, newBase(t))}
		r := post(t.Context(), s.URL+"/old", "{}")
		if given {
			r.Header.Set(keyField, "mine")
		}
		resp, err := c.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.NotEmpty(t, first)
		require.Len(t, second, want, "after status %d", status)
		if want > 0 {
			require.Equal(t, first, second[0])
		}
	}
}

// At another host, the caller's CheckRedirect decides whether the key goes there. A key that is
// withheld is not replaced by another one, also not further on, whatever the fields of the hosts are
// called.
func TestCheckRedirectCanWithholdTheKey(t *testing.T) {
	for _, field := range []string{keyField, "X-Request-Key"} {
		own := profile.Guard()
		own.KeyHeader, own.Echo = field, field
		withholding := map[string]func(r *http.Request){
			"by the context":      func(r *http.Request) { *r = *r.WithContext(client.WithoutKey(r.Context())) },
			"by an emptied field": func(r *http.Request) { r.Header[keyField], r.Header[field] = nil, nil },
			"by a removed field":  func(r *http.Request) { r.Header.Del(field) },
		}
		for name, withhold := range withholding {
			for _, status := range []int{301, 302, 303, 307, 308} {
				for _, given := range []bool{true, false} {
					if !given && name == "by a removed field" {
						continue // there is none to remove
					}
					name := fmt.Sprintf("%s, %s, %d, given: %v", field, name, status, given)
					var seen [][]string
					var place string
					next := map[string]string{"/old": "/new", "/new": "/newer"}
					s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						seen = append(seen, append(r.Header[keyField], r.Header["X-Request-Key"]...))
						if to := next[r.URL.Path]; to != "" {
							http.Redirect(w, r, place+to, status)
						}
					}))
					place = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
					transport := newTransport(t, newBase(t), client.WithServer(own, "127.0.0.1"))
					hc := &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
						if len(via) == 1 {
							require.NotEqual(t, via[0].URL.Host, r.URL.Host)
							withhold(r)
						}
						return nil
					}}
					r := post(t.Context(), s.URL+"/old", "{}")
					if given {
						r.Header.Set(field, "mine")
					}
					resp, err := hc.Do(r)
					require.NoError(t, err, name)
					require.NoError(t, resp.Body.Close())
					require.Len(t, seen, 3, name)
					require.Len(t, seen[0], 1, name)
					require.Empty(t, seen[1], name)
					require.Empty(t, seen[2], name)
				}
			}
		}
	}
}

// Another host may expect the key in another field. Nobody has withheld it, so a lost answer is
// asked for again there.
func TestRedirectTakesTheKeyToAnotherField(t *testing.T) {
	front := profile.Guard()
	front.KeyHeader, front.Echo = "X-Request-Key", "X-Request-Key"
	for _, given := range []bool{true, false} {
		var first string
		base := answering(answer{do: func(r *http.Request) (*http.Response, error) {
			first = r.Header.Get("X-Request-Key")
			return answer{status: http.StatusTemporaryRedirect, header: map[string]string{"Location": "http://other.test/"}}.response(r), nil
		}}, answer{err: errReset}, answer{do: func(r *http.Request) (*http.Response, error) {
			require.Empty(t, r.Header["X-Request-Key"])
			return answer{status: http.StatusCreated}.response(r), nil
		}})
		r := post(t.Context(), place, "{}")
		if given {
			r.Header.Set("X-Request-Key", "mine")
		}
		c := &http.Client{Transport: newTransport(t, base, quick, client.WithServer(front, "server.test"))}
		resp, err := c.Do(r)
		require.NoError(t, err, "given: %v", given)
		require.NoError(t, resp.Body.Close())
		require.NotEmpty(t, first)
		for _, sent := range base.requests()[1:] {
			require.Equal(t, []string{first}, sent.key)
		}
	}
}

// A redirect does not make an old key a new one, be it random or chosen.
func TestRedirectKeepsTheAge(t *testing.T) {
	redirect := answer{status: http.StatusTemporaryRedirect, header: map[string]string{"Location": "/new"}}
	field := post(t.Context(), place, "{}")
	field.Header.Set(keyField, "mine")
	inBody := profile.Square()
	inBody.TTL = time.Hour
	for name, r := range map[string]*http.Request{
		"body":   post(t.Context(), "http://body.test/", `{"idempotency_key":"k"}`),
		"random": post(t.Context(), place, "{}"), "context": post(client.WithKey(t.Context(), "mine"), place, "{}"), "field": field,
	} {
		synctest.Test(t, func(t *testing.T) {
			base := answering(redirect, answer{status: http.StatusCreated})
			c := &http.Client{Transport: newTransport(t, base, client.WithTTL(time.Hour), client.WithServer(inBody, "body.test")), CheckRedirect: func(*http.Request, []*http.Request) error {
				time.Sleep(time.Hour)
				return nil
			}}
			again := r.Clone(t.Context())
			again.Body, _ = r.GetBody()
			_, err := c.Do(again) //nolint:bodyclose // there is none
			require.ErrorIs(t, err, client.ErrKeyExpired, name)
			require.Len(t, base.requests(), 1)
		})
	}
}

// A redirect is no answer once the request may have been executed where it was sent first,
// whether http.Client would follow it or not.
func TestRedirectInDoubtIsNoAnswer(t *testing.T) {
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		redirect := answer{status: status, header: map[string]string{"Location": "/new", keyField: "k"}}
		for name, c := range map[string]struct {
			follow func(*http.Request, []*http.Request) error
			body   func() io.Reader
		}{
			"followed":            {nil, func() io.Reader { return strings.NewReader("{}") }},
			"without GetBody":     {nil, func() io.Reader { return once("{}") }},
			"use last response":   {func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, func() io.Reader { return strings.NewReader("{}") }},
			"CheckRedirect fails": {func(*http.Request, []*http.Request) error { return errors.New("not there") }, func() io.Reader { return strings.NewReader("{}") }},
		} {
			base := answering(answer{err: errReset}, redirect, answer{status: http.StatusCreated})
			hc := &http.Client{Transport: newTransport(t, base, quick), CheckRedirect: c.follow}
			_, err := hc.Do(request(client.WithKey(t.Context(), "k"), http.MethodPost, place, c.body())) //nolint:bodyclose // there is none
			require.ErrorIs(t, err, client.ErrOutcomeUnknown, name)
			require.ErrorContains(t, err, "/new", "%s: the error tells where to", name)
			base.requireOneKey(t, 2)

			base = answering(redirect, answer{status: http.StatusCreated})
			hc = &http.Client{Transport: newTransport(t, base, quick)}
			resp, err := hc.Do(request(client.WithKey(t.Context(), "k"), http.MethodPost, place, strings.NewReader("{}")))
			require.NoError(t, err, "without doubt, a redirect is followed with the key")
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			require.NoError(t, resp.Body.Close())
			base.requireOneKey(t, 2)
		}
	}
}
