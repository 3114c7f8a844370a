package conform

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"strings"

	"example.com/idempotency/policy"
)

// This file judges requests with a used key, and how they are refused.

// alone says why a changed request cannot be tried: the server does not take it.
func alone(_ *Profile, t *trial) string {
	if !t.get(0).ok() {
		return fmt.Sprintf("alone, with a key of its own, such a request gets %d", t.get(0).status)
	}
	if !t.get(1).ok() {
		return fmt.Sprintf("the first request gets %d", t.get(1).status)
	}
	return ""
}

// reusedIsRefused: another request with a used key is turned away.
var reusedIsRefused = unless(alone, func(_ *Profile, t *trial) verdict {
	first, other := t.get(1), t.get(2)
	switch {
	case other.refused():
		return holds
	case other.ok() && other.sameBody(first):
		return fails("a refusal; the answer of the first request came back")
	}
	return fails("a refusal")
})

// bound: what the profile says of another spelling of the same JSON.
var bound = unless(alone, func(p *Profile, t *trial) verdict {
	first, other := t.get(1), t.get(2)
	replayed := other.status == first.status && other.sameBody(first)
	switch p.Binding {
	case policy.Exact:
		return when(other.refused(), "a refusal, because every byte of the body counts")
	case policy.JSON:
		return when(replayed, "the answer of the first request, because only the meaning of JSON counts")
	}
	return when(replayed || other.refused(), "the answer of the first request, or a refusal")
})

// refusal says why a refusal of a reused key cannot be looked at.
func refusal(p *Profile, t *trial) string {
	if why := alone(p, t); why != "" {
		return why
	}
	if !t.get(2).refused() {
		return "no request was refused"
	}
	return ""
}

var mismatchStatus = unless(refusal, func(p *Profile, t *trial) verdict {
	return when(t.get(2).isOne(p.Mismatch), "%s", statuses(p.Mismatch))
})

// mismatchSilent looks for what only the first answer has, and neither the second request, nor its answer with
// a key of its own, nor an answer to anything else.
var mismatchSilent = unless(refusal, func(_ *Profile, t *trial) verdict {
	alone, first, refused := t.get(0), t.get(1), t.get(2)
	const expected = "a refusal that does not show the first answer; %q of it is there"
	if v := sameResource(first, alone, refused); v != "" {
		return fails(expected, v)
	}
	others := []answer{alone}
	for _, other := range t.lab.trials {
		if other != t {
			others = append(others, other.answers...)
		}
	}
	marks := marksOf(first, t.shots[2], others)
	if len(marks) == 0 {
		return untried("the first answer has nothing by which it could be found again")
	}
	found := shows(refused, marks)
	return when(found == "", expected, clip(found, 60))
})

// isDocument judges the form of a refusal.
var isDocument = unless(refusal, func(p *Profile, t *trial) verdict {
	a := t.get(2)
	if p.Refusals == "stripe" {
		kind, _ := point([]byte(a.body), "/error/type")
		return when(kind == "idempotency_error", `JSON with error.type "idempotency_error"`)
	}
	var doc struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
	}
	kind, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	err := json.Unmarshal([]byte(a.body), &doc)
	return when(kind == "application/problem+json" && err == nil && doc.Title != "" && (doc.Status == 0 || doc.Status == a.status),
		"application/problem+json with a title, and with the status of the answer if it has one (RFC 9457)")
})

var hasLink = unless(refusal, func(_ *Profile, t *trial) verdict {
	a := t.get(2)
	kind, _ := point([]byte(a.body), "/type")
	u, err := url.Parse(fmt.Sprint(kind))
	toPage := kind != nil && err == nil && (u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "" && strings.HasPrefix(u.Path, "/"))
	return when(toPage || describedBy(a.header) != "", `a link to the documentation: the type of the problem, or Link with rel="describedby"`)
})

var hasCode = unless(refusal, func(p *Profile, t *trial) verdict {
	if p.Code == "" {
		return untried("nothing is said about a field with the code of a refusal")
	}
	code := t.get(2).header.Get(p.Code)
	inBody, has := point([]byte(t.get(2).body), "/code")
	return when(code != "" && (!has || inBody == code), "%s with the code, the same as in the document", p.Code)
})

var linkTo = regexp.MustCompile(`<([^>]*)>([^<]*)`)

// describedBy returns the target of the link to the documentation, or nothing.
func describedBy(h map[string][]string) string {
	for _, link := range linkTo.FindAllStringSubmatch(strings.Join(h["Link"], ", "), -1) {
		if regexp.MustCompile(`(?i)rel="?[^";]*\bdescribedby\b`).MatchString(link[2]) {
			return link[1]
		}
	}
	return ""
}
