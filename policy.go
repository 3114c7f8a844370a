package idempotency

import (
	"net/http"
	"slices"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// This file tells clients the rules of a guard. They are made from the settings and the functions
// that the guard itself goes by.

// Policy returns what the settings of the guard mean for clients, and nothing about requests or records.
// [policy.Handler] publishes the policies of guards, as a page and in JSON: the draft of the IETF asks a
// resource to publish its rules for idempotency keys, with the time after which a key expires. Mount it
// where [WithPolicyURL] points to, and the type of each problem leads to its explanation. Which answers count is found
// out by asking the function of [WithOutcome] about each status from 200 to 599, without a header
// and with Retry-After; a function that looks at other fields may judge otherwise in a single
// case, and so may [Operation.SetOutcome].
func (g *Guard) Policy() policy.Policy {
	rt := g.route
	s := rt.set
	p := policy.Policy{
		Route: s.rules.Route, URL: s.policyURL,
		Methods:         slices.Clone(s.methods),
		Required:        s.required,
		Key:             policy.Key{Header: s.header, Strict: s.strictKeys, MaxBytes: intent.MaxKeyLen},
		Shared:          rt.sharedScope,
		Binding:         s.binding(),
		Rebinding:       s.rules.Rebinding,
		MaxRequestBody:  s.maxRequestBody,
		TTL:             s.rules.TTL,
		MaxResponseBody: s.rules.MaxAnswer,
		Wait:            s.rules.Wait,
		Answers:         s.answers(),
		Hold:            s.rules.Hold && !s.rules.Transaction,
		Attempts:        s.rules.MaxAttempts,
		HeldFor:         s.rules.Retention,
		FailOpen:        s.rules.FailOpen,
		ReplayedHeader:  response.ReplayedHeader,
		ErrorHeader:     problem.Header,
		ExpiryHeader:    s.expiryHeader,
		Problems:        sameFunc(s.errorWriter, writeProblem),
	}
	if s.keyFunc != nil {
		p.Key.Header, p.Key.Strict = "", false
	}
	for _, code := range problem.Codes() {
		if rt.refusesWith(code) {
			p.Refusals = append(p.Refusals, s.refusal(code))
		}
	}
	return p
}

// refusesWith reports whether a request can get a problem with this code.
func (rt *route) refusesWith(code problem.Code) bool {
	s := rt.set
	switch code {
	case problem.KeyMissing:
		return s.required
	case problem.KeyUnknown, problem.Misplaced: // of LookupHandler, and of a program that has a mistake
		return false
	case problem.Unauthenticated, problem.ScopeUnresolved:
		return !rt.sharedScope
	case problem.ReplayDenied:
		return s.authorizeReplay != nil
	case problem.RolledBack, problem.CannotCommit:
		return s.rules.Transaction
	default:
		return true
	}
}

func (s *settings) refusal(code problem.Code) policy.Refusal {
	r := policy.NewRefusal(code)
	switch code {
	case problem.KeyReused:
		r.Statuses = []int{s.mismatchStatus}
	case problem.BodyUnreadable:
		r.Statuses = append(r.Statuses, statusBodyLate)
	}
	return r
}

// answers returns which answers have which outcome.
func (s *settings) answers() []policy.Answers {
	all := s.answersWith(make(http.Header), "")
	return append(all, s.answersWith(http.Header{"Retry-After": {retryAfter}}, "Retry-After")...)
}

// answersWith returns the answers with these fields, or those of them that the fields make a
// difference for.
func (s *settings) answersWith(h http.Header, field string) []policy.Answers {
	var all []policy.Answers
	for _, outcome := range []Outcome{Final, NotExecuted, Unknown} {
		var statuses []policy.Range
		for status := http.StatusOK; status <= maxStatus; status++ {
			got := s.judgedAs(status, h.Clone())
			if got != outcome || field != "" && got == s.judgedAs(status, make(http.Header)) {
				continue
			}
			if last := len(statuses) - 1; last >= 0 && statuses[last].To == status-1 {
				statuses[last].To = status
			} else {
				statuses = append(statuses, policy.Range{From: status, To: status})
			}
		}
		if statuses != nil {
			all = append(all, policy.Answers{Outcome: outcome.String(), Next: s.next(outcome), With: field, Statuses: statuses})
		}
	}
	return all
}

const maxStatus = 599

// judgedAs is the outcome of a run with an answer, as far as clients are concerned.
func (s *settings) judgedAs(status int, h http.Header) Outcome {
	outcome := s.judge(status, h)
	if outcome == Unknown && s.rules.Transaction {
		return NotExecuted
	}
	return outcome
}

// next returns what the request after a run with that outcome gets.
func (s *settings) next(o Outcome) policy.Next {
	switch {
	case o == Final:
		return policy.Replay
	case o == Unknown && s.rules.Hold:
		return policy.Refused
	default:
		return policy.Run
	}
}
