package idempotency_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/problem"
)

// fingerprint returns what fp makes of a request with the given fields ("Name: value").
func fingerprint(t *testing.T, fp idempotency.FingerprintFunc, method, target, body string, fields ...string) idempotency.Fingerprint {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	got, err := fp(r, []byte(body))
	require.NoError(t, err)
	return got
}

const isJSON = "Content-Type: application/json"

func TestFingerprintsCountTheRequest(t *testing.T) {
	for name, fp := range map[string]idempotency.FingerprintFunc{
		"raw":    idempotency.RawFingerprint,
		"JSON":   idempotency.JSONFingerprint,
		"fields": idempotency.FieldsFingerprint("amount"),
	} {
		const body = `{"amount":1}`
		base := fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", body, isJSON)
		same := fingerprint(t, fp, "POST", "https://b.test:8443/x%2Fy?q=1", body, isJSON,
			"Traceparent: 00-1-2-01", "Authorization: Bearer t", "Cookie: a=b", "User-Agent: retry/2")
		require.Equal(t, base, same, "%s: host or other fields count", name)
		for change, other := range map[string]idempotency.Fingerprint{
			"method":           fingerprint(t, fp, "PATCH", "http://a.test/x%2Fy?q=1", body, isJSON),
			"path":             fingerprint(t, fp, "POST", "http://a.test/x%2Fz?q=1", body, isJSON),
			"escapes in path":  fingerprint(t, fp, "POST", "http://a.test/x/y?q=1", body, isJSON),
			"query":            fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=2", body, isJSON),
			"body":             fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", `{"amount":2}`, isJSON),
			"type":             fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", body, "Content-Type: text/plain"),
			"no type":          fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", body),
			"two types":        fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", body, isJSON, isJSON),
			"content coding":   fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", body, isJSON, "Content-Encoding: gzip"),
			"first coding":     fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", body, isJSON, "Content-Encoding: identity", "Content-Encoding: gzip"),
			"user of the URL":  fingerprint(t, fp, "POST", "http://u:p@a.test/x%2Fy?q=1", body, isJSON),
			"nothing in body":  fingerprint(t, fp, "POST", "http://a.test/x%2Fy?q=1", "", isJSON),
			"everything moved": fingerprint(t, fp, "POST", "http://a.test/x%2Fy", "q=1"+body, isJSON),
		} {
			require.NotEqual(t, base, other, "%s: %s does not count", name, change)
		}
	}
}

// net/http accepts a target without a path. It counts too.
func TestFingerprintsCountATargetWithoutPath(t *testing.T) {
	seen := map[idempotency.Fingerprint]string{}
	for _, target := range []string{"mailto:a@b.test", "mailto:c@d.test", "tel:a@b.test", "mailto:*", "*", "http://a.test"} {
		fp := fingerprint(t, idempotency.RawFingerprint, "POST", target, "")
		require.Empty(t, seen[fp], target)
		seen[fp] = target
	}
}

// The target is the client's own, whatever outer handlers have made of the URL. A request that
// no server has read has only its URL.
func TestFingerprintsCountTheTargetThatWasSent(t *testing.T) {
	of := func(requestURI, target string) idempotency.Fingerprint {
		r := httptest.NewRequestWithContext(t.Context(), "POST", target, nil)
		r.RequestURI = requestURI
		fp, err := idempotency.RawFingerprint(r, nil)
		require.NoError(t, err)
		return fp
	}
	want := of("/billing/orders/1?a=1", "/billing/orders/1?a=1")
	for _, uri := range []string{
		"/billing/orders/1?a=1", "http://a.test/billing/orders/1?a=1", "HTTPS://a.test:8443/billing/orders/1?a=1",
	} {
		for _, made := range []string{"/orders/1?a=1", "/billing/orders/1", "/", "/billing/orders/1/?a=1"} {
			require.Equal(t, want, of(uri, made), "%s, made %s", uri, made)
		}
	}
	require.Equal(t, want, of("", "http://a.test/billing/orders/1?a=1"), "no server has read it")
	for _, uri := range []string{
		"/shipping/orders/1?a=1", "/billing/orders/1?a=2", "/billing/orders/1", "//a.test/billing/orders/1?a=1",
		"/http://a.test/billing/orders/1?a=1", "x:y://a.test/billing/orders/1?a=1", "http://a.test?a=1", "http://u:p@a.test/billing/orders/1?a=1", "*",
	} {
		require.NotEqual(t, want, of(uri, "/billing/orders/1?a=1"), uri)
	}
}

// A handler that makes requests in the process gives them a path and a query of their own, but not a
// RequestURI. What outer handlers leave of the target does not count, wherever the guard stands.
func TestFingerprintsCountTheURLOfAPart(t *testing.T) {
	of := func(requestURI string, u url.URL) idempotency.Fingerprint {
		r := &http.Request{Method: "POST", RequestURI: requestURI, URL: &u}
		fp, err := idempotency.RawFingerprint(r, nil)
		require.NoError(t, err)
		return fp
	}
	seen := map[idempotency.Fingerprint]string{}
	for _, part := range []string{
		"/batch?a=1&b=2", "/charges", "/charges?a=1", "/charges?a=1&b=2", "/refunds", "/batch?b=2&a=1", "/batch?a=1&a=1", "/batch?a=2", "/a/batch?a=1&b=2",
	} {
		u, err := url.Parse(part)
		require.NoError(t, err)
		fp := of("/batch?a=1&b=2", *u)
		require.Empty(t, seen[fp], part)
		seen[fp] = part
		require.Equal(t, fp, of("/batch?a=1&b=2", *u))
	}
	whole := of("/api/a%2Fb/%7Ec/?a=1&b=2&c=3", url.URL{Path: "/api/a/b/~c/", RawPath: "/api/a%2Fb/%7Ec/", RawQuery: "a=1&b=2&c=3"})
	for _, left := range []url.URL{
		{Path: "/a/b/~c/", RawPath: "/a%2Fb/%7Ec/", RawQuery: "a=1&b=2"},
		{Path: "/api/a/b/~c", RawQuery: "b=2"},
		{Path: "~c/"},
		{Path: "/"},
		{},
	} {
		require.Equal(t, whole, of("/api/a%2Fb/%7Ec/?a=1&b=2&c=3", left), "%+v", left)
	}
	escaped := url.URL{Path: "/a%41", RawPath: "/a%2541"}
	require.NotEqual(t, of("/a%41", url.URL{Path: "/aA"}), of("/a%41", escaped), "a path that looks as it was sent")
}

// TestFingerprintsStayTheSame pins one fingerprint of each function. Records outlive
// deployments: a change needs a new version. Package digest has the layout.
func TestFingerprintsStayTheSame(t *testing.T) {
	const body = `{"amount":100, "sent":"10:00"}`
	request := func(fp idempotency.FingerprintFunc) idempotency.Fingerprint {
		return fingerprint(t, fp, "POST", "http://a.test/v1/charges?q=1", body, isJSON)
	}
	for name, tt := range map[string]struct {
		got  idempotency.Fingerprint
		want string
	}{
		"raw":    {request(idempotency.RawFingerprint), "014afa72e03df16852fb8c559328f9f88627e49b245bf426722d83991cc7a61f"},
		"JSON":   {request(idempotency.JSONFingerprint), "028cbe8763b2364da877b751385c2b5c93a9e6d4b5e05c57d89eddbda4cfce39"},
		"fields": {request(idempotency.FieldsFingerprint("amount")), "031b673c55171ab4aa40655fea0388f489c8b3a5002d9716e5e320a83c791db7"},
		"parts":  {idempotency.NewFingerprint(200, []byte("a"), []byte("b")), "c851cfbc4c81f243224165778e4af9e20ab15a9cea072e25472d7d3499926e01"},
	} {
		require.Equal(t, tt.want, hex.EncodeToString(tt.got[:]), name)
	}
}

func TestJSONFingerprintIgnoresSpelling(t *testing.T) {
	one := fingerprint(t, idempotency.JSONFingerprint, "POST", "/", `{"amount":1e2,"to":"\u0041"}`, isJSON)
	two := fingerprint(t, idempotency.JSONFingerprint, "POST", "/", `{ "to": "A", "amount": 100 }`, isJSON)
	require.Equal(t, one, two)
	three := fingerprint(t, idempotency.JSONFingerprint, "POST", "/", `{ "to": "A", "amount": 100.01 }`, isJSON)
	require.NotEqual(t, one, three)
}

// net/http splits a form by the parameter boundary* and not by boundary. The bytes that stand in for
// the boundary of the one are the payee of the other.
func TestEncodedBoundaryDoesNotHideThePayee(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = fmt.Fprint(w, strings.TrimSpace(r.FormValue("payee")))
		}}
		var s *guardtest.Server
		pay := func(payee, boundary string) guardtest.Reply {
			return s.Do(t, guardtest.Call{
				Key:    "k",
				Header: http.Header{"Content-Type": {"multipart/form-data; boundary=" + payee + boundary}},
				Body: "--x\r\nContent-Disposition: form-data; name=\"payee\"\r\n\r\n" +
					"\r\n--" + payee + "--\r\n--x--\r\n",
			})
		}
		for _, boundary := range []string{"; boundary*=us-ascii''x", "; boundary*0=x", "; Boundary*0*=us-ascii''x"} {
			s = serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
			require.Equal(t, "--alice--", pay("alice", boundary).Body)
			guardtest.RequireProblem(t, pay("bob", boundary), http.StatusConflict, problem.KeyReused)
			require.True(t, pay("alice", boundary).Replayed())
		}
	})
}

// encoding/json reads amount and Amount into one field, and the last member wins. Requests whose
// members have the same names in another order, or other names in another case, are not the same.
func TestNamesThatDifferInCaseAreNotMixedUp(t *testing.T) {
	for name, fp := range map[string]idempotency.FingerprintFunc{
		"JSON": idempotency.JSONFingerprint, "fields": idempotency.FieldsFingerprint("amount"),
	} {
		for _, bodies := range [][]string{
			{`{"amount":1,"Amount":999}`, `{"Amount":999,"amount":1}`},
			{`{"Amount":1}`, `{"Amount":999}`},
			{`{"amount":1,"AMOUNT":1}`, `{"amount":1,"AMOUNT":999}`},
		} {
			t.Run(name+" "+bodies[0], func(t *testing.T) {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					var charge struct{ Amount int }
					require.NoError(t, json.NewDecoder(r.Body).Decode(&charge))
					_, _ = fmt.Fprint(w, charge.Amount)
				}}
				guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithFingerprint(fp))
				s := guardtest.ServeRecorder(t, guard.Handler(h))
				require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k", Body: bodies[0]}).Status)
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k", Body: bodies[1]}), http.StatusConflict, problem.KeyReused)
				require.True(t, s.Do(t, guardtest.Call{Key: "k", Body: bodies[0]}).Replayed())
			})
		}
	}
}

func TestFieldsFingerprintCountsOnlyTheFields(t *testing.T) {
	fp := idempotency.FieldsFingerprint("amount", "items.sku")
	base := fingerprint(t, fp, "POST", "/", `{"amount":1,"items":[{"sku":"a"}],"sent":"10:00"}`, isJSON)
	same := fingerprint(t, fp, "POST", "/", `{"sent":"10:01","amount":1,"items":[{"n":2,"sku":"a"}]}`, isJSON)
	require.Equal(t, base, same, "other fields count")
	other := fingerprint(t, fp, "POST", "/", `{"amount":1,"items":[{"sku":"b"}],"sent":"10:00"}`, isJSON)
	require.NotEqual(t, base, other, "a field of an element does not count")
	all := fingerprint(t, idempotency.FieldsFingerprint("amount"), "POST", "/", `{"amount":1}`, isJSON)
	less := fingerprint(t, idempotency.FieldsFingerprint("amount", "absent"), "POST", "/", `{"amount":1}`, isJSON)
	require.NotEqual(t, all, less, "the list of fields does not count")
}

func TestFieldsFingerprintPanics(t *testing.T) {
	for _, fields := range [][]string{nil, {""}, {"a", "b."}, {`\x`}} {
		text, _ := guardtest.PanicOf(func() { idempotency.FieldsFingerprint(fields...) }).(string)
		require.Contains(t, text, "idempotency: FieldsFingerprint: ", "%q", fields)
	}
}

func TestNewFingerprint(t *testing.T) {
	a, b, ab := []byte("a"), []byte("b"), []byte("ab")
	seen := map[idempotency.Fingerprint]bool{}
	for _, f := range []idempotency.Fingerprint{
		idempotency.NewFingerprint(128),
		idempotency.NewFingerprint(128, nil),
		idempotency.NewFingerprint(128, a, b),
		idempotency.NewFingerprint(128, b, a),
		idempotency.NewFingerprint(128, ab),
		idempotency.NewFingerprint(128, ab, nil),
		idempotency.NewFingerprint(128, nil, ab),
		idempotency.NewFingerprint(129, ab),
	} {
		require.False(t, seen[f], "%x occurs twice", f)
		seen[f] = true
	}
	require.EqualValues(t, 255, idempotency.NewFingerprint(255, a)[0])
	require.EqualValues(t, 129, idempotency.NewFingerprint(1, a)[0])
	require.Equal(t, idempotency.NewFingerprint(129, a), idempotency.NewFingerprint(1, a))
}

// TestFingerprintOf shows that a record's fingerprint can be made again from its first
// byte, for the functions that have no parameters.
func TestFingerprintOf(t *testing.T) {
	for name, fp := range map[string]idempotency.FingerprintFunc{
		"raw": idempotency.RawFingerprint, "JSON": idempotency.JSONFingerprint,
	} {
		want := fingerprint(t, fp, "POST", "/", `{"a": 1}`, isJSON)
		require.Equal(t, want, fingerprint(t, idempotency.FingerprintOf(want[0]), "POST", "/", `{"a": 1}`, isJSON), name)
	}
	for _, version := range []byte{0, 3, 4, 7, 128, 255} {
		require.Nil(t, idempotency.FingerprintOf(version), version)
	}
}

func TestRawFingerprintDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop items at random under the race detector")
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/charges?expand=customer", nil)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	body := make([]byte, 1<<10)
	// The limit is not zero, because the garbage collector may empty the pool.
	require.Less(t, testing.AllocsPerRun(200, func() { _, _ = idempotency.RawFingerprint(r, body) }), 1.0)
}

// When a deployment changes the function, retries of earlier requests do not become mismatches,
// and other requests do not become retries.
func TestRetryIsComparedByTheFunctionOfItsRecord(t *testing.T) {
	own := func(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, body), nil
	}
	failing := func(*http.Request, []byte) (idempotency.Fingerprint, error) {
		return idempotency.Fingerprint{}, errors.New("no such field")
	}
	fields := idempotency.FieldsFingerprint("amount")
	type row struct {
		before idempotency.FingerprintFunc
		after  idempotency.Option
		known  bool
	}
	guardtest.Each(t, map[string]row{
		"raw":         {idempotency.RawFingerprint, idempotency.WithFingerprint(idempotency.JSONFingerprint), true},
		"JSON":        {idempotency.JSONFingerprint, idempotency.WithFingerprint(fields), true},
		"named":       {own, idempotency.WithFingerprint(idempotency.RawFingerprint, fields, own), true},
		"one fails":   {own, idempotency.WithFingerprint(idempotency.RawFingerprint, failing, own), true},
		"not by name": {fields, idempotency.WithFingerprint(idempotency.FieldsFingerprint("currency")), false},
	}, func(t *testing.T, tt row) {
		store, h := idempotency.NewMemoryStore(), &guardtest.Counter{}
		before := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithFingerprint(tt.before)).Handler(h))
		after := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, tt.after).Handler(h))
		before.Do(t, guardtest.Call{Key: "k"})
		if tt.known {
			require.True(t, after.Do(t, guardtest.Call{Key: "k"}).Replayed())
		} else {
			guardtest.RequireProblem(t, after.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.KeyReused)
		}
		other := guardtest.Call{Key: "k", Body: `{"amount":1000}`}
		guardtest.RequireProblem(t, after.Do(t, other), http.StatusConflict, problem.KeyReused)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// During a deployment a process meets a record whose function it does not have. It cannot tell a
// retry from another request: neither is refused for good, and neither runs. A function that a
// route of the process has is known, although it is not that of the record's route.
func TestRecordOfAnUnknownFunctionIsLeftToAnotherProcess(t *testing.T) {
	own := func(_ *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, body), nil
	}
	guardtest.Each(t, map[string]idempotency.FingerprintFunc{"own": own, "fields": idempotency.FieldsFingerprint("amount")}, func(t *testing.T, newer idempotency.FingerprintFunc) {
		store, h, seen := idempotency.NewMemoryStore(), guardtest.FailsFirst(), &guardtest.Events{}
		deployed := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithFingerprint(newer)).Handler(h))
		guard := guardtest.NewGuard(t, store, idempotency.WithFailOpen(true), idempotency.WithObserver(seen.Observe))
		old := guardtest.ServeRecorder(t, guard.Handler(h))
		for _, status := range []int{http.StatusInternalServerError, http.StatusCreated} { // released, completed
			require.Equal(t, status, deployed.Do(t, guardtest.Call{Key: "k"}).Status)
			for _, body := range []string{"", `{"amount":999}`} {
				guardtest.RequireProblem(t, old.Do(t, guardtest.Call{Key: "k", Body: body}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			}
		}
		require.True(t, deployed.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 2, h.Runs.Load())
		require.Equal(t, 4, seen.Count(event.Corrupt))

		route := guardtest.ServeRecorder(t, guard.With(idempotency.WithFingerprint(newer)).Handler(h))
		require.True(t, route.Do(t, guardtest.Call{Key: "k"}).Replayed())
		guardtest.RequireProblem(t, old.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.KeyReused)
	})
}

// A compressed form, and JSON in another charset, are compared by every process, whichever function it has.
func TestCodedRequestIsComparedByEachFunction(t *testing.T) {
	body := "--b\r\n\r\n1\r\n--b--\r\n"
	calls := map[string]guardtest.Call{
		"form":  {Key: "form", Body: body, Header: http.Header{"Content-Type": {"multipart/form-data; boundary=b"}, "Content-Encoding": {"gzip"}}},
		"twice": {Key: "twice", Body: `{"amount":1}`, Header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"identity", "identity"}}},
		"JSON":  {Key: "json", Body: `{"amount":1}`, Header: http.Header{"Content-Type": {"application/json; charset=utf-16"}}},
	}
	own := func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
		return idempotency.NewFingerprint(1, []byte(r.URL.Path), body), nil
	}
	functions := []idempotency.FingerprintFunc{
		idempotency.RawFingerprint, idempotency.JSONFingerprint, idempotency.FieldsFingerprint("amount"), own,
	}
	for i, before := range functions[:3] {
		for j, after := range functions {
			store, h := idempotency.NewMemoryStore(), &guardtest.Counter{}
			first := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithFingerprint(before)).Handler(h))
			then := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithFingerprint(after)).Handler(h))
			for name, c := range calls {
				require.Equal(t, http.StatusCreated, first.Do(t, c).Status)
				require.True(t, then.Do(t, c).Replayed(), "%s, %d and %d", name, i, j)
				c.Body = strings.Replace(c.Body, "1", "2", 1)
				guardtest.RequireProblem(t, then.Do(t, c), http.StatusConflict, problem.KeyReused)
			}
			require.EqualValues(t, len(calls), h.Runs.Load())
		}
	}
}
