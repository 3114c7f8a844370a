package policy_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/policy"
	"example.com/idempotency/problem"
)

// elements calls f for each element of a page, which must be well-formed XML but for those that
// never have an end.
func elements(t *testing.T, page string, f func(name string, attributes map[string]string)) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose = false, []string{"meta", "!DOCTYPE"}
	depth := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			attributes := make(map[string]string)
			for _, a := range e.Attr {
				attributes[a.Name.Local] = a.Value
			}
			f(e.Name.Local, attributes)
		case xml.EndElement:
			depth--
		}
	}
	require.Zero(t, depth)
}

func TestPageCanBeReadByEveryone(t *testing.T) {
	payouts := charges
	payouts.Route = "POST /payouts"
	w := get(policy.Handler(charges, payouts), http.MethodGet)
	page := w.Body.String()
	require.True(t, strings.HasPrefix(page, "<!DOCTYPE html>\n<html lang=\"en\">"))
	require.Contains(t, page, "<title>")
	ids, links, headings := make(map[string]bool), []string{}, []string{}
	elements(t, page, func(name string, a map[string]string) {
		require.NotContains(t, []string{"script", "img", "iframe", "form", "link", "object"}, name)
		for attribute := range a {
			require.False(t, strings.HasPrefix(attribute, "on") || attribute == "style", attribute)
		}
		if id := a["id"]; id != "" {
			require.False(t, ids[id], "%s is there twice", id)
			ids[id] = true
		}
		for _, attribute := range []string{"href", "aria-labelledby"} {
			if to, ok := a[attribute]; ok {
				links = append(links, strings.TrimPrefix(to, "#"))
			}
		}
		if name == "th" {
			require.NotEmpty(t, a["scope"])
		}
		if regexp.MustCompile(`^h\d$`).MatchString(name) {
			headings = append(headings, name)
		}
	})
	for _, to := range links {
		require.True(t, ids[to], "the link to %q leads nowhere", to)
	}
	for _, code := range problem.Codes() {
		require.True(t, ids[string(code)], "no anchor for %s", code)
	}
	require.Equal(t, "h1", headings[0])
	require.Equal(t, 1, strings.Count(strings.Join(headings, " "), "h1"))
	require.Equal(t, strings.Count(page, "<table>"), strings.Count(page, "<caption>"))

	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	require.Contains(t, policy, "default-src 'none'")
}

// A label, a method or the name of a field is text, whatever is in it.
func TestTextIsNotMarkup(t *testing.T) {
	const attack = `"><script>alert('%s')</script><b onclick=x>&lt;`
	p := charges
	p.Route, p.Methods, p.ExpiryHeader, p.ReplayedHeader, p.ErrorHeader, p.Key.Header = attack, []string{attack, attack}, attack, attack, attack, attack
	p.Answers = []policy.Answers{{With: attack, Statuses: []policy.Range{{From: 200, To: 299}}}}
	p.Refusals = []policy.Refusal{{Code: attack, Title: attack, Meaning: attack, Statuses: []int{400}}}
	w := get(policy.Handler(p), http.MethodGet)
	require.NotContains(t, w.Body.String(), "<script")
	require.NotContains(t, w.Body.String(), "<b ")
	require.NotContains(t, w.Body.String(), "%!")
	elements(t, w.Body.String(), func(name string, _ map[string]string) {
		require.NotContains(t, []string{"script", "b"}, name)
	})
	document := get(policy.Handler(p), http.MethodGet, "Accept", "application/json").Body.String()
	require.NotContains(t, document, "<script")
	require.NotContains(t, string(p.OpenAPI()), "<script")
}

// text returns a rule of a policy.
func text(t *testing.T, p policy.Policy, id string) string {
	t.Helper()
	for _, r := range p.Rules() {
		if r.ID == id {
			return r.Text
		}
	}
	require.Fail(t, "no rule "+id)
	return ""
}

// A time is in the unit that people would choose, and is never longer than it is.
func TestPeriods(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"24 hours": 24 * time.Hour, "7 days": 7 * 24 * time.Hour, "36 hours": 36 * time.Hour, "1 hour": time.Hour,
		"90 minutes": 90 * time.Minute, "1 minute": time.Minute, "61 seconds": 61 * time.Second, "1 second": time.Second,
		"2 seconds": 2999 * time.Millisecond, "20 milliseconds": 20 * time.Millisecond,
	} {
		p := charges
		p.TTL = d
		require.Contains(t, text(t, p, "replay"), " for "+want+".")
	}
}

func TestSizes(t *testing.T) {
	for want, n := range map[string]int64{
		"1 MiB": 1 << 20, "1 GiB": 1 << 30, "64 KiB": 64 << 10, "1000 bytes": 1000, "1 byte": 1, "1025 bytes": 1025,
	} {
		p := charges
		p.MaxRequestBody = n
		require.Contains(t, text(t, p, "max-request"), " of more than "+want+" ")
	}
}

func TestLists(t *testing.T) {
	for want, methods := range map[string]string{"POST": "POST", "POST or PATCH": "POST PATCH", "A, B or C": "A B C"} {
		p := charges
		p.Methods = strings.Fields(methods)
		require.Contains(t, text(t, p, "methods"), " the method "+want+" can ")
	}
}
