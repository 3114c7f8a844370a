// Package conform finds out, over the wire, whether a server keeps what is said about
// idempotency keys. It sends requests of one form to a server, makes them again in all the ways in
// which clients and networks do, and compares what comes back with a profile.
//
//   - check.go: the checks, as a table: what is sent and who judges it
//   - profile.go, profiles.go, published.go: what is expected, by whom it is said, and how binding
//     that is; the profiles; the one that a server publishes itself
//   - try.go: what is sent; judge.go, judge_*.go: what the answers mean
//   - leak.go: whether one answer is in another
//   - lab.go, trial.go, template.go, client.go, broken.go: how it is sent
//   - effects.go, settle.go: how effects are counted, and when
//
// Package report has what was found, and the forms in which it is shown.
package conform

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// Run makes all checks, and returns what was found. It returns an error if the server cannot be
// reached at all, or if the configuration is wrong.
func Run(ctx context.Context, c Config) (*report.Report, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	l, err := newLab(ctx, c)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.prepare(); err != nil {
		return nil, err
	}
	r := &report.Report{
		Type: "conformance", Target: c.Template.URL, Method: c.Template.Method, Profile: l.profile.Name, Source: l.profile.Source,
		Effects: c.Effects.String(),
	}
	if l.broken == "" {
		l.settle()
	}
	for i := range checks {
		if checks[i].documents && (l.published == nil || c.Profile == Published) {
			continue // there is no policy, or it is the profile
		}
		r.Findings = append(r.Findings, l.find(&checks[i]))
	}
	r.Requests = l.wire.sent()
	r.Notes = l.notes()
	return r, nil
}

// prepare finds out in which form the server takes keys, whether effects can be counted, and what the
// server publishes.
func (l *lab) prepare() error {
	t := l.trial(pair, &l.profile)
	if !t.first().ok() && l.quoted {
		l.quoted = false
		if other := l.trial(experiment{name: "raw pair", make: pair.make}, &l.profile); other.first().ok() {
			l.trials[pair.name], t = other, other
		}
	}
	first := t.first()
	switch {
	case t.untried != "":
		l.broken = t.untried
	case first.err != nil:
		return first.err
	case !first.ok():
		l.broken = fmt.Sprintf("the first request gets %d", first.status)
	case l.noEffects == "" && (len(t.marks) == 0 || t.marks[0] < 0):
		l.noEffects = "the source of effects cannot be read: " + l.cfg.Effects.String()
	case l.noEffects == "" && t.marks[0] == 0:
		l.noEffects = "the first request was answered, and has not moved " + l.cfg.Effects.String()
	}
	l.typical = first.began.Sub(first.wrote)
	if l.broken == "" {
		l.findPolicy()
	}
	if l.cfg.Profile == Published {
		if l.published == nil {
			return fmt.Errorf("%w: no published policy: %s", ErrConfig, l.noPolicy)
		}
		l.profile = *l.published
		if l.cfg.KeyHeader == "" && l.profile.KeyHeader != "" && !sameField(l.profile.KeyHeader, l.keyHeader) {
			return fmt.Errorf("%w: the policy has the key in %s: repeat with --key-header", ErrConfig, l.profile.KeyHeader)
		}
	}
	return nil
}

// settle makes the trials that count effects, and makes those again that late effects may have spoilt: those with
// a wrong number of them, and all if one came between two trials, after the last one, or into one that was right
// when it was made again.
func (l *lab) settle() {
	wrong := l.wrong()
	if l.noEffects != "" || l.cfg.Effects.ID != "" {
		return
	}
	strayed := l.outgrown() || l.strayed
	for _, t := range l.order {
		by := wrong[t]
		if by > 0 && t.waited > 0 && t.waited >= t.wait() {
			continue // it began when all was quiet
		}
		if by != 0 {
			t.calm, t.patient = true, by < 0
			t.run()
		}
	}
	if !strayed && len(l.wrong()) == len(wrong) {
		return
	}
	for _, t := range l.order {
		if !t.plain && !t.patient {
			t.calm, t.patient = true, true
			t.run()
		}
	}
	if l.outgrown() {
		l.noEffects = ceaseless
	}
}

// wrong returns the trials in which a number of effects is wrong, and by how much.
func (l *lab) wrong() map[*trial]int {
	all := map[*trial]int{}
	for i := range checks {
		c := &checks[i]
		if c.try.plain || c.documents {
			continue
		}
		if t := l.trial(c.try, &l.profile); t.untried == "" {
			if by := c.judge(&l.profile, t).off; by != 0 {
				all[t] = min(cmp.Or(all[t], by), by)
			}
		}
	}
	return all
}

// notes says what bounds the findings.
func (l *lab) notes() (all []string) {
	if n := l.wire.long; n > 0 {
		all = append(all, fmt.Sprintf("%d answers were longer than %d MiB: what comes after that was neither read nor compared.", n, maxAnswer>>20))
	}
	if l.late > 0 {
		all = append(all, fmt.Sprintf("Effects came up to %v after the answer, so each count has waited.", l.late.Round(time.Millisecond)))
	}
	return all
}

// find makes a check.
func (l *lab) find(c *check) report.Finding {
	p, rule := &l.profile, l.profile.rule(c.id)
	f := report.Finding{Check: c.id, Group: c.group, Claim: c.claim}
	if c.documents {
		p, rule = l.published, Rule{report.Must, documentation + ", and the published policy, " + c.field}
	}
	f.Level, f.Says = rule.Level, rule.Says
	v := verdict{}
	if l.broken != "" && c.id != "first-answer" {
		v = untried("%s", l.broken)
	} else if t := l.trial(c.try, p); t.untried != "" {
		v = untried("%s", t.untried)
	} else if v = c.judge(p, t); v.result == report.Fails {
		f.Steps = t.steps
	}
	f.Result, f.Expected, f.Reason = v.result, v.expected, v.reason
	return f
}

// documentation is who says that a server does what it publishes.
const documentation = "draft-ietf-httpapi-idempotency-key-header-07, section 2.5 (the resource publishes its rules)"
