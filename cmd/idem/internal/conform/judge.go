package conform

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// This file says what answers mean. Each judge is a pure function of a profile and a trial.

// A judge tells whether a trial is as a profile says.
type judge func(p *Profile, t *trial) verdict

// first returns the first answer of a trial.
func (t *trial) first() answer { return t.get(0) }

func (t *trial) get(i int) answer {
	if i >= len(t.answers) {
		return answer{}
	}
	return t.answers[i]
}

func (t *trial) last() answer { return t.get(len(t.answers) - 1) }

// statuses names those that are expected.
func statuses(of []int) string {
	if len(of) == 0 {
		return "a status from 400 to 499"
	}
	var all []string
	for _, s := range of {
		all = append(all, strconv.Itoa(s))
	}
	return strings.Join(all, " or ")
}

// isOne reports whether an answer has one of the statuses, or any of a refusal if there are none.
func (a answer) isOne(of []int) bool {
	return slices.Contains(of, a.status) || len(of) == 0 && a.refused()
}

// succeeds judges one answer.
func succeeds(i int) judge {
	return func(_ *Profile, t *trial) verdict { return when(t.get(i).ok(), "a status from 200 to 299") }
}

// effects expects a number of effects at a mark.
func effects(mark, want int) judge {
	return func(_ *Profile, t *trial) verdict {
		switch {
		case t.lab.noEffects != "":
			return untried("%s", t.lab.noEffects)
		case t.blind && t.lab.cfg.Effects.ID != "":
			return untried("the first answer was not seen, so its ID is not known")
		case mark >= len(t.marks) || t.marks[mark] < 0:
			return untried("the source of effects could not be read, or was reset")
		}
		v := when(t.marks[mark] == want, "effects: %d; there were %d", want, t.marks[mark])
		v.off = t.marks[mark] - want
		return v
	}
}

// moved expects that effects have, or have not, become more between two marks.
func moved(from, to, by int) judge {
	return func(p *Profile, t *trial) verdict {
		if from >= len(t.marks) || t.marks[from] < 0 {
			return effects(to, by)(p, t)
		}
		return effects(to, t.marks[from]+by)(p, t)
	}
}

// all holds if every judge says so.
func all(judges ...judge) judge {
	return func(p *Profile, t *trial) verdict {
		for _, j := range judges {
			if v := j(p, t); v.result != report.Holds {
				return v
			}
		}
		return holds
	}
}

// unless leaves a check out for a reason.
func unless(reason func(p *Profile, t *trial) string, j judge) judge {
	return func(p *Profile, t *trial) verdict {
		if why := reason(p, t); why != "" {
			return untried("%s", why)
		}
		return j(p, t)
	}
}

// Two requests with two keys have both run if there were two effects. Where effects are not counted,
// different answers show it.
func bothRun(p *Profile, t *trial) verdict {
	a, b := t.get(0), t.get(1)
	if !a.ok() || !b.ok() {
		return untried("such a key gets %d", max(a.status, b.status))
	}
	if v := effects(0, 2)(p, t); v.result != report.NotTried {
		return v
	}
	return runsApart(p, a, b, "two runs")
}

// runsApart tells from two answers alone whether there were two runs.
func runsApart(p *Profile, a, b answer, expected string) verdict {
	switch {
	case marked(p, b):
		return fails("%s; the second answer is marked as a replay", expected)
	case !a.sameBody(b):
		return holds
	}
	return untried("the answers are the same, and effects are not counted")
}

func marked(p *Profile, a answer) bool {
	return p.Mark != "" && strings.EqualFold(a.header.Get(p.Mark), "true")
}

// sameStatus and sameBody compare two answers of a trial.
func sameStatus(i, j int) judge {
	return func(_ *Profile, t *trial) verdict {
		return when(t.get(i).status == t.get(j).status, "status %d", t.get(i).status)
	}
}

func sameBody(i, j int) judge {
	return func(_ *Profile, t *trial) verdict {
		return when(t.get(i).sameBody(t.get(j)), "the body of the first answer: %s", clip(strconv.Quote(t.get(i).body), 120))
	}
}

// sameAnswer compares what a caller sees first.
func sameAnswer(i, j int) judge { return all(succeeds(j), sameStatus(i, j), sameBody(i, j)) }

// own matches the fields that belong to one connection, moment or client, or that say something of the
// key, so that a replay need not have them, or not with the same value.
var own = regexp.MustCompile(`(?i)^(connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|date|age|expires|via|alt-svc|nel|report-to|cf-.*|` +
	`set-cookie2?|www-authenticate|authentication-info|.*(token|secret|password|jwt|api-?key|access-key|session|session-?id|nonce)|` +
	`(x-)?request-id|(x-)?correlation-id|x-amzn-.*|traceparent|tracestate|server-timing|x-runtime|(x-)?rate-?limit.*|idempoten(cy|t)-.*)$`)

func sameHeader(p *Profile, t *trial) verdict {
	return sameFields(p, t.get(0).header, t.get(1).header)
}

func sameFields(p *Profile, first, later http.Header) verdict {
	for name, values := range first {
		if own.MatchString(name) || sameField(name, p.Mark) || sameField(name, p.Expiry) || sameField(name, p.KeyHeader) {
			continue
		}
		if got := later[name]; !slices.Equal(values, got) {
			return fails("%s: %s; it was %q", name, strings.Join(values, ", "), strings.Join(got, ", "))
		}
	}
	return holds
}

func sameTrailer(p *Profile, t *trial) verdict {
	if len(t.get(0).trailer) == 0 {
		return untried("the answer has no trailer")
	}
	return sameFields(p, t.get(0).trailer, t.get(1).trailer)
}

func replayMarked(p *Profile, t *trial) verdict {
	switch {
	case p.Mark == "":
		return untried("nothing is said about a field that marks replays")
	case marked(p, t.get(0)):
		return fails("no %s in the first answer", p.Mark)
	}
	return when(marked(p, t.get(1)), "%s: true in the second answer", p.Mark)
}

func cookieNotReplayed(_ *Profile, t *trial) verdict {
	first := t.get(0).header.Values("Set-Cookie")
	if len(first) == 0 {
		return untried("the first answer sets no cookie")
	}
	return when(!slices.Equal(first, t.get(1).header.Values("Set-Cookie")), "no cookie of the first answer in a replay")
}

func missing(p *Profile, t *trial) verdict {
	a := t.first()
	switch {
	case p.Required == nil:
		return when(a.ok() || a.isOne(p.Missing), "success, or %s", statuses(p.Missing))
	case *p.Required:
		return when(a.isOne(p.Missing), "%s, because a key is required", statuses(p.Missing))
	}
	return when(a.ok(), "success, because no key is required")
}

func invalid(p *Profile, t *trial) verdict {
	return when(t.first().isOne(p.Invalid), "%s", statuses(p.Invalid))
}

// taken: a form of the key is understood, and a retry is one.
var taken = sameAnswer(0, 1)

func rawTaken(p *Profile, t *trial) verdict {
	if !p.Raw {
		return invalid(p, t)
	}
	return all(succeeds(0), taken)(p, t)
}

func quotedTaken(p *Profile, t *trial) verdict { return all(succeeds(0), taken)(p, t) }

var oneKey = unless(func(_ *Profile, t *trial) string {
	if !t.get(0).ok() || t.get(1).status >= 400 {
		return "one of the two forms is not taken"
	}
	return ""
}, taken)

var hasExpiry judge = func(p *Profile, t *trial) verdict {
	if p.Expiry == "" {
		return untried("nothing is said about a field with the life of a key")
	}
	seconds, err := strconv.Atoi(t.first().header.Get(p.Expiry))
	return when(err == nil && seconds >= 0, "%s with a number of seconds", p.Expiry)
}

// lostAgain: the retry gets what was lost, as far as that was seen.
func lostAgain(_ *Profile, t *trial) verdict {
	lost, got := t.get(0), t.get(1)
	if !lost.ok() {
		return untried("the answer that was lost was not seen")
	}
	return when(got.status == lost.status && strings.HasPrefix(got.body, lost.body), "the answer that was lost: %d, %s", lost.status, clip(strconv.Quote(lost.body), 120))
}

// restarted compares the answers before and after a crash.
var restarted = unless(func(_ *Profile, t *trial) string {
	if !t.first().ok() {
		return fmt.Sprintf("the first request gets %d", t.first().status)
	}
	return ""
}, sameAnswer(0, 1))

// afterTTL: the key has been forgotten.
func afterTTL(p *Profile, t *trial) verdict {
	if v := moved(1, 2, 1)(p, t); v.result != report.NotTried || !t.get(2).ok() {
		return v
	}
	return runsApart(p, t.get(0), t.get(2), "a run, because the key has ended")
}

func tooLarge(_ *Profile, t *trial) verdict {
	return when(t.first().status == http.StatusRequestEntityTooLarge, "413")
}

// isPublished: without a policy nothing else can be said of it.
func isPublished(_ *Profile, t *trial) verdict {
	if t.lab.published == nil {
		return untried("%s", t.lab.noPolicy)
	}
	return holds
}
