package client

import (
	"math"
	"net/http"
	"slices"

	"example.com/idempotency/client/profile"
)

// A ruling is what becomes of a request after an answer.
type ruling uint8

func (r ruling) verdict() Verdict {
	switch r {
	case accept:
		return Settled
	case again:
		return Retry
	default:
		return InDoubt
	}
}

// byMeaning rules on an answer that says what became of the key, by itself and if an earlier
// attempt may have been executed.
var byMeaning = [...]struct{ first, doubt ruling }{
	profile.Own:        {accept, accept},
	profile.InFlight:   {wait, wait},
	profile.NotRun:     {again, again},
	profile.Refused:    {accept, unknown},
	profile.Reused:     {accept, accept},
	profile.Held:       {accept, accept},
	profile.Lost:       {accept, accept},
	profile.Unanswered: {ask, ask},
}

// A row has the rulings on an answer with a status of a range.
type row struct {
	from, to int
	first    ruling // no earlier attempt can have been executed
	declared ruling // in doubt; a declared server repeats the key
	stranger ruling // in doubt; another one repeats the key
	silent   ruling // in doubt; the answer does not repeat the key
}

// byStatus rules on any other answer, by the first row that has its status. In doubt, it counts
// whether the answer repeats the key, and whether the program has said how its server speaks: from
// then on, only the one who executed the request may speak. A proxy, an authentication or a conflict
// with the attempt itself must not pass for the end of it. Docs/reference/client.md has the reasons.
var byStatus = [...]row{
	{100, 299, accept, accept, accept, accept},
	{303, 303, accept, accept, accept, unknown},
	{307, 308, accept, unknown, unknown, unknown},
	{300, 399, accept, accept, ask, unknown},
	{401, 401, accept, unknown, ask, unknown},
	{403, 403, accept, accept, ask, unknown},
	{407, 407, accept, unknown, ask, unknown},
	{408, 408, wait, ask, wait, wait},
	{409, 409, accept, ask, ask, ask},
	{421, 421, accept, unknown, ask, unknown},
	{422, 423, accept, ask, ask, ask},
	{425, 425, again, again, again, again},
	{429, 429, again, again, again, again},
	{499, 499, wait, ask, wait, wait},
	{400, 498, accept, accept, ask, ask},
	{501, 501, accept, ask, ask, ask},
	{505, 506, accept, ask, ask, ask},
	{510, 510, accept, ask, ask, ask},
	{511, 511, accept, unknown, unknown, unknown},
	{math.MinInt, math.MaxInt, ask, ask, ask, ask}, // what is no status counts as 5xx, as RFC 9110, section 15, says
}

// rule rules on an answer to a request with a key or without one. In doubt, an earlier attempt of
// it may have been executed.
func rule(a *answer, keyed, doubt bool) ruling {
	switch {
	case a.nowhere && keyed && a.status >= http.StatusTemporaryRedirect:
		return unknown // the same request is to be made at a place that nobody knows
	case a.replayed:
		return accept // the recorded answer does not change
	case a.inFlight() && !keyed:
		return accept // there is no recorded answer to come
	case a.meaning > profile.Silent && int(a.meaning) < len(byMeaning):
		if doubt {
			return byMeaning[a.meaning].doubt
		}
		return byMeaning[a.meaning].first
	case a.inFlight() && !a.useless():
		return wait
	}
	row := byStatus[slices.IndexFunc(byStatus[:], func(r row) bool { return r.from <= a.status && a.status <= r.to })]
	r := row.silent
	switch {
	case !doubt:
		r = row.first
	case a.echoes && a.declared:
		r = row.declared
	case a.echoes:
		r = row.stranger
	}
	switch {
	case r == wait && (!keyed || a.echoes && a.declared):
		r = ask // the handler has said it, and each attempt may be another run
	case !a.hinted || a.status < http.StatusMultipleChoices: // no server has a word on whether to ask again
	case a.again && (r == accept || r == unknown):
		r = ask
	case a.useless() && r == again && !doubt:
		r = accept
	case a.useless() && r != accept:
		r = unknown
	}
	return r
}

const locationField = "Location"

// leadsNowhere reports whether an answer is a redirect to what is no URL. An http.Client returns an error of its own
// for it, from which its caller does not learn that the request has been answered.
func leadsNowhere(r *http.Request, resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		_, err := r.URL.Parse(resp.Header.Get(locationField))
		return err != nil
	default:
		return false
	}
}

const (
	accept  ruling = iota + 1 // it is the answer
	again                     // this attempt did nothing, and another one is made
	ask                       // it may have been executed, and another attempt asks
	wait                      // the same, and this attempt does not count: the work may be going on
	unknown                   // the call ends: this answer says nothing, and another one would not either
)
