package conform

import (
	"net/http"
	"slices"
	"time"

	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// This file judges other callers, and requests at the same time.

// otherSees: nobody gets the recorded answer of somebody else.
func otherSees(p *Profile, t *trial) verdict {
	if !t.get(0).ok() {
		return untried("the first request gets %d", t.get(0).status)
	}
	if p.Shared {
		return untried("all callers share one set of keys")
	}
	if !t.get(1).ok() {
		return holds
	}
	return ranForItself(p, t)
}

func ranForItself(p *Profile, t *trial) verdict {
	if v := moved(0, 1, 1)(p, t); v.result != report.NotTried {
		if v.off != 0 {
			v.expected = "a run for the second caller, and not the answer of the first"
		}
		return v
	}
	return runsApart(p, t.get(0), t.get(1), "a run for the second caller")
}

// otherRuns: each caller has keys of its own, unless they are shared.
func otherRuns(p *Profile, t *trial) verdict {
	if p.Shared {
		return when(t.get(1).refused() || t.get(1).sameBody(t.get(0)), "no run, because all callers share one set of keys")
	}
	if !t.get(1).ok() {
		return fails("a run for the second caller")
	}
	return ranForItself(p, t)
}

func strangerSees(_ *Profile, t *trial) verdict {
	if t.get(0).ok() {
		return untried("the server takes requests without a credential")
	}
	return when(!t.get(2).ok(), "%d, as with a key of its own", t.get(0).status)
}

// crowdAnswers: who comes at the same time gets the answer, or a refusal.
func crowdAnswers(_ *Profile, t *trial) verdict {
	last := t.last()
	for _, a := range t.answers {
		if a.err != nil || a.ok() && !a.sameBody(last) || a.status >= 500 && a.status != http.StatusServiceUnavailable {
			return fails("the answer of the one run for each, or a refusal")
		}
	}
	return when(last.ok(), "the answer, once nothing is running")
}

// turnedAway returns the requests of a crowd that were refused.
func (t *trial) turnedAway() (refused []answer) {
	for _, a := range t.answers[:max(len(t.answers)-1, 0)] {
		if !a.ok() && a.err == nil {
			refused = append(refused, a)
		}
	}
	return refused
}

// slow is how long a route must take alone, for requests to meet in it without a doubt.
const slow = 50 * time.Millisecond

// met reports whether all requests of a crowd have surely come while the first one was running: the
// first answer began long after all had been sent.
func (t *trial) met() bool {
	crowd := t.answers[:max(len(t.answers)-1, 0)]
	for _, a := range crowd {
		for _, b := range crowd {
			if b.began.Sub(a.wrote) < t.lab.typical/2 {
				return false
			}
		}
	}
	return t.lab.typical >= slow
}

func crowdStatus(p *Profile, t *trial) verdict {
	refused := t.turnedAway()
	switch {
	case len(refused) > 0:
		return when(!slices.ContainsFunc(refused, func(a answer) bool { return !a.isOne(p.InFlight) }), "%s for those that come meanwhile", statuses(p.InFlight))
	case p.Waits:
		return holds
	case !t.met():
		return untried("no request has surely come while another one was running: a route that takes %v or more shows it", slow)
	}
	return fails("%s for those that come meanwhile; none was refused", statuses(p.InFlight))
}

func crowdRetryAfter(_ *Profile, t *trial) verdict {
	refused := t.turnedAway()
	if len(refused) == 0 {
		return untried("no request was refused because another one was running")
	}
	return when(!slices.ContainsFunc(refused, func(a answer) bool { return a.header.Get("Retry-After") == "" }), "Retry-After in each refusal")
}
