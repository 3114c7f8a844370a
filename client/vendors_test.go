package client_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
)

// A vendor is a profile with the answers that the pages show which are its sources.
type vendor struct {
	profile  profile.Server
	inFlight answer // a request with the key is being executed; zero if the vendor shows none
	reused   answer // the key was used for another request
	replayed answer // the recorded answer to what was executed
	invalid  answer // failed validation, which executes nothing
	broken   answer // an error of the server, which may have executed it
	// recordsErrors says that an error is recorded and repeated, with the mark of a replay.
	recordsErrors bool
	// silent says that a failed validation has no mark that a proxy's answer lacks.
	silent bool
}

func jsonAnswer(status int, body string, header ...string) answer {
	a := answer{status: status, body: body, header: map[string]string{"Content-Type": "application/json"}}
	for i := 0; i < len(header); i += 2 {
		a.header[header[i]] = header[i+1]
	}
	return a
}

func problemAnswer(status int, title string) answer {
	return answer{
		status: status, header: map[string]string{"Content-Type": "application/problem+json", "Content-Language": "en"},
		body: `{"type":"https://developer.example.com/idempotency","title":"` + title + `","detail":"…"}`,
	}
}

func coded(status int, code string) answer {
	return answer{status: status, header: map[string]string{"Idempotency-Error": code, keyField: "k"}, body: "sorry"}
}

const created = `{"id":"ch_1"}`

var vendors = []vendor{
	{
		profile:  profile.Guard(),
		inFlight: refused(409, "in-flight", "Retry-After", "0", keyField, "k"),
		reused:   refused(409, "key-reused", keyField, "k"),
		replayed: jsonAnswer(201, created, "Idempotent-Replayed", "true", keyField, "k"),
		invalid:  jsonAnswer(400, `{"error":"amount"}`, keyField, "k"),
		broken:   jsonAnswer(500, "", keyField, "k"),
	},
	{ // with an error writer: the code is in the header only
		profile:  named(profile.Guard(), "guard, error writer"),
		inFlight: coded(409, "in-flight"),
		reused:   coded(409, "key-reused"),
		replayed: jsonAnswer(201, created, "Idempotent-Replayed", "true", keyField, "k"),
		invalid:  jsonAnswer(400, `{"error":"amount"}`, keyField, "k"),
		broken:   jsonAnswer(500, "", keyField, "k"),
	},
	{
		profile:  profile.Draft(),
		inFlight: problemAnswer(409, "A request is outstanding for this Idempotency-Key"),
		reused:   problemAnswer(422, "Idempotency-Key is already used"),
		replayed: jsonAnswer(201, created),
		invalid:  jsonAnswer(400, `{"error":"amount"}`),
		broken:   jsonAnswer(500, ""),
		silent:   true,
	},
	{
		profile:       profile.Stripe(),
		inFlight:      jsonAnswer(409, `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error","message":"…"}}`, keyField, "k", "Stripe-Should-Retry", "true"),
		reused:        jsonAnswer(400, `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters"}}`, keyField, "k"),
		replayed:      jsonAnswer(200, created, "Idempotent-Replayed", "true", "Original-Request", "req_1", keyField, "k"),
		invalid:       jsonAnswer(400, `{"error":{"type":"invalid_request_error","param":"amount"}}`, keyField, "k"),
		broken:        jsonAnswer(500, `{"error":{"type":"api_error"}}`, keyField, "k"),
		recordsErrors: true,
	},
	{
		profile:  profile.Adyen(),
		inFlight: jsonAnswer(422, `{"status":422,"errorCode":"704","message":"request already processed or in progress","errorType":"validation"}`, "transient-error", "true"),
		replayed: jsonAnswer(200, created, keyField, "k"),
		invalid:  jsonAnswer(422, `{"status":422,"errorCode":"130","message":"Required field 'reference' is not provided.","errorType":"validation"}`),
		broken:   jsonAnswer(500, `{"status":500,"errorType":"internal"}`),
	},
	{
		profile:  profile.Square(),
		reused:   jsonAnswer(400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED","field":"idempotency_key"}]}`),
		replayed: jsonAnswer(200, created),
		invalid:  jsonAnswer(400, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"MISSING_REQUIRED_PARAMETER"}]}`),
		broken:   jsonAnswer(500, `{"errors":[{"category":"API_ERROR","code":"INTERNAL_SERVER_ERROR"}]}`),
	},
	{
		profile:  profile.PayPal(),
		inFlight: jsonAnswer(409, `{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`),
		reused:   jsonAnswer(422, `{"name":"UNPROCESSABLE_ENTITY","details":[{"issue":"DUPLICATE_REQUEST_ID"}]}`),
		replayed: jsonAnswer(201, created),
		invalid:  jsonAnswer(400, `{"name":"INVALID_REQUEST","details":[{"issue":"MISSING_REQUIRED_PARAMETER"}]}`),
		broken:   jsonAnswer(500, `{"name":"INTERNAL_SERVER_ERROR"}`),
	},
	{
		profile:  profile.GoCardless(),
		replayed: jsonAnswer(409, `{"error":{"type":"invalid_state","code":409,"errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM123"}}]}}`),
		invalid:  jsonAnswer(422, `{"error":{"type":"validation_failed","code":422,"errors":[{"field":"amount"}]}}`),
		broken:   jsonAnswer(500, `{"error":{"type":"gocardless","code":500}}`),
	},
}

// withStatus is the server error of a vendor with another status.
func withStatus(status int, v vendor) answer {
	a := v.broken
	a.status = status
	return a
}

func named(s profile.Server, name string) profile.Server {
	s.Name = name
	return s
}

// A counter is the effects that a vendor's server has had for the request.
type effect struct{ count int }

// executes is an answer that has an effect first.
func (e *effect) executes(a answer) answer {
	return answer{do: func(r *http.Request) (*http.Response, error) {
		e.count++
		if a.err != nil {
			return nil, a.err
		}
		return a.response(r), nil
	}}
}

// requireAgreement checks that the caller is told nothing that is not so.
func requireAgreement(t *testing.T, got reply, err error, effects int) {
	t.Helper()
	require.LessOrEqual(t, effects, 1)
	switch {
	case errors.Is(err, client.ErrOutcomeUnknown): // nothing is claimed
	case errors.Is(err, client.ErrAnswerLost):
		require.Equal(t, 1, effects, "told: executed")
	case errors.Is(err, client.ErrKeyReused):
		require.Zero(t, effects, "told: not executed")
	case err != nil:
		require.Zero(t, effects, "told: not executed: %v", err)
	case got.status < 300:
		require.Equal(t, 1, effects, "told: executed")
	case got.status < 500:
		require.Zero(t, effects, "told: refused with %d", got.status)
	case !client.Replayed(got.resp):
		require.Zero(t, effects, "told: %d is the end of it", got.status)
	}
}

// The answers of each vendor, before and after an attempt that may have been executed: what
// the caller is told agrees with the effects, and it is told as much as can be known.
func TestVendors(t *testing.T) {
	proxy := func(status int) answer {
		return answer{status: status, header: map[string]string{"Content-Type": "text/html"}, body: "<html>"}
	}
	reset := answer{err: errReset}
	body := `{"amount":1,"idempotency_key":"k"}`
	for _, v := range vendors {
		done := v.replayed.status // 0 if the answer to what was executed cannot be had
		if done >= 300 {
			done = 0
		}
		broken := v.broken
		if v.recordsErrors {
			broken.header = maps.Clone(broken.header)
			broken.header["Idempotent-Replayed"] = "true"
		}
		unmarkedInvalid := v.invalid.status
		if v.silent {
			unmarkedInvalid = -1
		}
		type cell struct {
			script func(e *effect) []answer
			status int // 0: ErrAnswerLost, -1: ErrOutcomeUnknown, -2: ErrKeyReused, -3: both
			skip   bool
		}
		for name, c := range map[string]cell{
			"in flight, first": {func(e *effect) []answer {
				e.count = 1 // by another attempt
				return []answer{v.inFlight, v.inFlight, v.replayed}
			}, done, v.inFlight.status == 0},
			"in flight, after doubt": {func(e *effect) []answer {
				return []answer{e.executes(reset), v.inFlight, v.inFlight, v.replayed}
			}, done, v.inFlight.status == 0},
			"in flight for ever, after doubt": {func(e *effect) []answer {
				return []answer{e.executes(reset), v.inFlight}
			}, -1, v.inFlight.status == 0},
			"reused, first":       {func(*effect) []answer { return []answer{v.reused} }, -2, v.reused.status == 0},
			"reused, after doubt": {func(e *effect) []answer { return []answer{e.executes(reset), v.reused} }, -3, v.reused.status == 0},
			"replayed, first":     {func(e *effect) []answer { e.count = 1; return []answer{v.replayed} }, done, false},
			"replayed, after doubt": {func(e *effect) []answer {
				return []answer{e.executes(reset), v.replayed}
			}, done, false},
			"invalid, first":                   {func(*effect) []answer { return []answer{v.invalid} }, v.invalid.status, false},
			"invalid, after doubt":             {func(*effect) []answer { return []answer{reset, v.invalid} }, unmarkedInvalid, false},
			"server error, then the answer":    {func(e *effect) []answer { return []answer{e.executes(v.broken), v.replayed} }, done, false},
			"501, first":                       {func(*effect) []answer { return []answer{withStatus(501, v)} }, 501, false},
			"505, first":                       {func(*effect) []answer { return []answer{withStatus(505, v)} }, 505, false},
			"501 for ever, after doubt":        {func(e *effect) []answer { return []answer{e.executes(reset), withStatus(501, v)} }, -1, false},
			"501, after doubt":                 {func(e *effect) []answer { return []answer{e.executes(reset), withStatus(501, v), v.replayed} }, done, false},
			"408, then the answer":             {func(e *effect) []answer { return []answer{e.executes(withStatus(408, v)), v.replayed} }, done, false},
			"408 for ever":                     {func(e *effect) []answer { return []answer{e.executes(withStatus(408, v)), withStatus(408, v)} }, -1, false},
			"408 of a proxy, then the answer":  {func(e *effect) []answer { return []answer{e.executes(proxy(408)), proxy(408), v.replayed} }, done, false},
			"server error, after doubt":        {func(e *effect) []answer { return []answer{e.executes(reset), v.broken, v.replayed} }, done, false},
			"server error for ever":            {func(e *effect) []answer { return []answer{e.executes(v.broken), v.broken} }, -1, false},
			"recorded error, first":            {func(e *effect) []answer { e.count = 1; return []answer{broken} }, 500, !v.recordsErrors},
			"recorded error, after doubt":      {func(e *effect) []answer { return []answer{e.executes(reset), broken} }, 500, !v.recordsErrors},
			"proxy 404, first":                 {func(*effect) []answer { return []answer{proxy(404)} }, 404, false},
			"proxy 404, then the answer":       {func(e *effect) []answer { return []answer{e.executes(reset), proxy(404), v.replayed} }, done, false},
			"proxy 413, then the answer":       {func(e *effect) []answer { return []answer{e.executes(reset), proxy(413), v.replayed} }, done, false},
			"proxy 501, then the answer":       {func(e *effect) []answer { return []answer{e.executes(reset), proxy(501), v.replayed} }, done, false},
			"proxy 404 for ever, after doubt":  {func(e *effect) []answer { return []answer{e.executes(reset), proxy(404)} }, -1, false},
			"proxy 409 for ever, after doubt":  {func(e *effect) []answer { return []answer{e.executes(reset), proxy(409)} }, -1, false},
			"proxy 401, after doubt":           {func(e *effect) []answer { return []answer{e.executes(reset), proxy(401)} }, -1, false},
			"proxy 302 to a login":             {func(e *effect) []answer { return []answer{e.executes(reset), proxy(302)} }, -1, false},
			"proxy 502, then the answer":       {func(e *effect) []answer { return []answer{e.executes(proxy(502)), v.replayed} }, done, false},
			"another vendor's word, in doubt":  {func(e *effect) []answer { return []answer{e.executes(reset), jsonAnswer(423, `{"code":"locked"}`)} }, -1, false},
			"a plain 422, after doubt":         {func(e *effect) []answer { return []answer{e.executes(reset), proxy(422), v.replayed} }, done, false},
			"a plain 400, after a plain reset": {func(e *effect) []answer { return []answer{e.executes(reset), proxy(400), v.replayed} }, done, false},
		} {
			if c.skip {
				continue
			}
			t.Run(v.profile.Name+"/"+name, func(t *testing.T) {
				e := new(effect)
				base := answering(c.script(e)...)
				var got reply
				var err error
				synctest.Test(t, func(t *testing.T) { // so that "for ever" takes no time
					transport := newStranger(t, base, client.WithServer(v.profile, "*"))
					got, err = send(transport, post(client.WithKey(t.Context(), "k"), place, body))
				})
				requireAgreement(t, got, err, e.count)
				switch c.status {
				case 0:
					require.ErrorIs(t, err, client.ErrAnswerLost)
					require.NotErrorIs(t, err, client.ErrOutcomeUnknown)
					require.Contains(t, string(failure(t, err).Answer), "PM123", "the error has the document")
				case -1:
					require.ErrorIs(t, err, client.ErrOutcomeUnknown)
					require.NotErrorIs(t, err, client.ErrKeyReused)
				case -2, -3:
					require.ErrorIs(t, err, client.ErrKeyReused)
					require.Equal(t, c.status == -3, errors.Is(err, client.ErrOutcomeUnknown))
				default:
					require.NoError(t, err)
					require.Equal(t, c.status, got.status)
				}
				seen := ""
				for _, r := range base.requests() {
					require.True(t, seen == "" || seen == fmt.Sprint(r), "all attempts are the same")
					seen = fmt.Sprint(r)
				}
			})
		}
	}
}

// To a transport that knows no server, the same answers are never the end of what may have
// been executed, and are never a reason to send it again.
func TestVendorsThatAreStrangers(t *testing.T) {
	for _, v := range vendors {
		for name, a := range map[string]answer{"in flight": v.inFlight, "reused": v.reused, "broken": v.broken} {
			if a.status == 0 {
				continue
			}
			e := new(effect)
			base := answering(e.executes(answer{err: errReset}), a)
			got, err := send(newStranger(t, base, quick), post(client.WithKey(t.Context(), "k"), place, "{}"))
			requireAgreement(t, got, err, e.count)
			require.ErrorIs(t, err, client.ErrOutcomeUnknown, "%s, %s", v.profile.Name, name)
			require.Len(t, base.requests(), 1)

			// Resumed by a later process, it is in doubt from the start.
			synctest.Test(t, func(t *testing.T) {
				_, err = send(newStranger(t, answering(a)), post(client.Intent{Key: "k", Resumed: true}.Context(t.Context()), place, "{}"))
			})
			require.ErrorIs(t, err, client.ErrOutcomeUnknown, "%s, %s", v.profile.Name, name)
		}
	}
}

// The client obeys the server that says whether another attempt makes sense.
func TestRetryHints(t *testing.T) {
	for name, c := range map[string]struct {
		answer   answer
		requests int
		unknown  bool
		doubt    bool
	}{
		"false for a 500":                  {jsonAnswer(500, "", "Stripe-Should-Retry", "false"), 1, true, false},
		"false for a 409":                  {jsonAnswer(409, "", "Stripe-Should-Retry", "false"), 1, false, false},
		"false for a 429":                  {jsonAnswer(429, "", "Stripe-Should-Retry", "false"), 1, false, false},
		"true for a 400":                   {jsonAnswer(400, "", "Stripe-Should-Retry", "true"), 4, true, false},
		"true for a 500":                   {jsonAnswer(500, "", "Stripe-Should-Retry", "true"), 4, true, false},
		"another word":                     {jsonAnswer(400, "", "Stripe-Should-Retry", "maybe"), 1, false, false},
		"false for a 404, in doubt":        {jsonAnswer(404, "", "Stripe-Should-Retry", "false"), 2, true, true},
		"lock_timeout is not run":          {jsonAnswer(429, `{"error":{"code":"lock_timeout"}}`, "Stripe-Should-Retry", "true"), 4, false, false},
		"a declined card, in doubt":        {jsonAnswer(402, `{"error":{"type":"card_error"}}`, "Stripe-Should-Retry", "false"), 2, false, true},
		"a replayed 500, whatever is said": {jsonAnswer(500, "", "Stripe-Should-Retry", "true", "Idempotent-Replayed", "true"), 2, false, true},
	} {
		answers := []answer{c.answer}
		if c.doubt {
			answers = []answer{{err: errReset}, c.answer}
		}
		base := answering(answers...)
		got, err := send(newStranger(t, base, quick, client.WithServer(profile.Stripe(), "*")), post(t.Context(), place, "{}"))
		require.Len(t, base.requests(), c.requests, name)
		require.Equal(t, c.unknown, errors.Is(err, client.ErrOutcomeUnknown), "%s: %v", name, err)
		if !c.unknown {
			require.NoError(t, err, name)
			require.Equal(t, c.answer.status, got.status)
		}
	}
}

// A program can describe a server that no profile knows.
func TestProfileOfOnesOwn(t *testing.T) {
	own := profile.Server{
		Name: "own", KeyHeader: "X-Key", Replayed: profile.Field{Name: "X-Cached"},
		Rules: []profile.Rule{
			{Status: []int{418}, Member: "errors.kind", Value: "*busy*", Means: profile.InFlight},
			{Header: profile.Field{Name: "X-Busy"}, Means: profile.InFlight},
		},
		Classify: func(resp *http.Response, body []byte) profile.Meaning {
			if resp.StatusCode == 500 && string(body) == "held" {
				return profile.Held
			}
			return profile.Silent
		},
	}
	try := func(answers ...answer) (reply, error) {
		return send(newStranger(t, answering(answers...), quick, client.WithServer(own, "*")), post(t.Context(), place, "{}"))
	}
	got, err := try(jsonAnswer(418, `{"errors":[{"kind":"a"},{"kind":["very BUSY now"]}]}`), answer{status: 403, header: map[string]string{"X-Busy": ""}},
		answer{status: 500, header: map[string]string{"X-Cached": "hit"}, body: "recorded"})
	require.NoError(t, err)
	require.Equal(t, "recorded", got.body)
	_, err = try(answer{status: 500, body: "held"})
	require.ErrorIs(t, err, client.ErrHeld)
	_, err = try(jsonAnswer(418, `{"errors":{"kind":7}}`))
	require.NoError(t, err)
}

func TestProfilesAreValid(t *testing.T) {
	for _, s := range profile.All() {
		require.NoError(t, s.Validate())
		changed := s.Clone()
		for i := range changed.Rules {
			changed.Rules[i].Means = profile.Silent
			for j := range changed.Rules[i].Status {
				changed.Rules[i].Status[j] = 0
			}
		}
		require.NotEqual(t, changed.Rules, s.Rules)
	}
	require.Equal(t, "silent", profile.Silent.String())
	require.Equal(t, "lost", profile.Lost.String())
	require.Equal(t, "none", profile.Meaning(-1).String())
}
