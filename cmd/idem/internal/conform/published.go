package conform

import (
	"encoding/json"
	"fmt"
	"net/url"

	"example.com/idempotency/cmd/idem/internal/conform/report"
	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// This file finds the policy that a server publishes, and makes a profile of it.

// findPolicy looks for the published policy: where the program was told to look, or where refusals
// lead.
func (l *lab) findPolicy() {
	at := l.cfg.Policy
	for _, e := range []experiment{otherBody, noKey} {
		if at != "" {
			break
		}
		for _, a := range l.trial(e, &l.profile).answers {
			if to := describedBy(a.header); to != "" && at == "" {
				at = to
			}
		}
	}
	base, _ := url.Parse(l.cfg.Template.URL)
	u, err := base.Parse(at)
	switch {
	case at == "":
		l.noPolicy = "no refusal has a link to a policy, and none was named (--policy)"
		return
	case err != nil:
		l.noPolicy = fmt.Sprintf("the link to the policy, %q, is no URL", at)
		return
	}
	u.Fragment = ""
	if err := l.wire.take(l.ctx, 1); err != nil {
		l.noPolicy = err.Error()
		return
	}
	s := shot{method: "GET", url: u.String()}.set("Accept", "application/json")
	a := l.wire.send(l.ctx, s, "")
	if !a.ok() {
		l.noPolicy = fmt.Sprintf("the policy at %s cannot be had: %v", u, a)
		return
	}
	p, err := l.readPolicy([]byte(a.body))
	if err != nil {
		l.noPolicy = fmt.Sprintf("what is published at %s is no policy that this program can read: %v", u, err)
		return
	}
	p.Source = u.String()
	l.published = p
}

// document is the published form of policies: package policy writes it.
type document struct {
	Routes []struct {
		policy.Policy
		Wait int64 `json:"wait_seconds"`
	} `json:"routes"`
}

// readPolicy makes a profile of the policy of the route that is tested.
func (l *lab) readPolicy(text []byte) (*Profile, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	u, _ := url.Parse(l.cfg.Template.URL)
	route := l.cfg.Template.Method + " " + u.Path
	for _, p := range d.Routes {
		if p.Route == route || len(d.Routes) == 1 {
			return promised(&p.Policy, p.Wait > 0), nil
		}
	}
	return nil, fmt.Errorf("it has %d policies, and none for %s", len(d.Routes), route)
}

// promised is a policy as a profile.
func promised(p *policy.Policy, waits bool) *Profile {
	to := Profile{
		Name: Published, KeyHeader: p.Key.Header, Quoted: p.Key.Strict, Raw: !p.Key.Strict, MaxKey: p.Key.MaxBytes,
		Required: &p.Required, Binding: p.Binding, Waits: waits, Shared: p.Shared,
		Mark: p.ReplayedHeader, Code: p.ErrorHeader, Expiry: p.ExpiryHeader, MaxRequest: p.MaxRequestBody, Rules: map[string]Rule{},
	}
	if p.Problems {
		to.Refusals = "problem"
	}
	for _, r := range p.Refusals {
		switch r.Code {
		case problem.KeyReused:
			to.Mismatch = r.Statuses
		case problem.InFlight:
			to.InFlight = r.Statuses
		case problem.KeyMissing:
			to.Missing = r.Statuses
		case problem.KeyInvalid:
			to.Invalid = r.Statuses
		}
	}
	for _, c := range checks {
		if c.field != "" && !c.documents {
			to.Rules[c.id] = Rule{report.Must, "the published policy, " + c.field}
		}
	}
	return &to
}
