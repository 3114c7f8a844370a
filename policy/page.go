package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"strconv"
	"strings"
)

// This file writes the page. It does so without html/template: a program that can reach package
// text/template links every method of every type, and this package is linked by each guard.
// Whatever is not written here goes through [page.text].

const style = `body{font:1rem/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}` +
	`table{border-collapse:collapse}caption{text-align:left;font-weight:bold;padding:.5rem 0}` +
	`th,td{border:1px solid;padding:.25rem .75rem;text-align:left;vertical-align:top}:target{outline:3px solid;outline-offset:.5rem}`

// contentSecurityPolicy allows the page its own style, and nothing else to anybody.
var contentSecurityPolicy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

type page struct{ bytes.Buffer }

// markup writes a format that is HTML. The arguments are text.
func (w *page) markup(format string, args ...any) {
	for i, arg := range args {
		args[i] = html.EscapeString(fmt.Sprint(arg))
	}
	fmt.Fprintf(&w.Buffer, format, args...)
}

func renderPage(policies []Policy, problems []Refusal) []byte {
	var w page
	w.markup("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Idempotency keys</title>\n" +
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<style>")
	w.WriteString(style) // as its hash says
	w.markup("</style>\n</head>\n<body>\n<main>\n<h1>Idempotency keys</h1>\n" +
		"<p>A request that carries an idempotency key can be sent again when its answer is lost. These are the rules.</p>\n" +
		"<nav aria-label=\"Contents\">\n<ul>\n")
	for i, p := range policies {
		w.markup("<li><a href=\"#route-%s\">%s</a></li>\n", strconv.Itoa(i+1), p.heading())
	}
	w.markup("<li><a href=\"#problems\">Problems</a></li>\n</ul>\n</nav>\n")
	for i := range policies {
		w.route(strconv.Itoa(i+1), &policies[i])
	}
	w.markup("<section id=\"problems\" aria-labelledby=\"problems-heading\">\n<h2 id=\"problems-heading\">Problems</h2>\n")
	for _, p := range problems {
		w.problem(&p)
	}
	w.markup("</section>\n</main>\n</body>\n</html>\n")
	return w.Bytes()
}

func (p Policy) heading() string {
	if p.Route == "" {
		return "Rules"
	}
	return p.Route
}

func (w *page) route(n string, p *Policy) {
	w.markup("<section id=\"route-%s\" aria-labelledby=\"route-%s-heading\">\n<h2 id=\"route-%s-heading\">%s</h2>\n<ul>\n", n, n, n, p.heading())
	for _, r := range p.Rules() {
		w.markup("<li>%s</li>\n", r.Text)
	}
	w.markup("</ul>\n<table>\n<caption>Which answers count, unless the operation says otherwise</caption>\n" +
		"<thead><tr><th scope=\"col\">Status</th><th scope=\"col\">The next request with the key</th></tr></thead>\n<tbody>\n")
	for _, a := range p.Answers {
		w.markup("<tr><td>%s</td><td>%s</td></tr>\n", a.statuses(), a.consequence())
	}
	w.markup("</tbody>\n</table>\n<table>\n<caption>How a request can be refused</caption>\n" +
		"<thead><tr><th scope=\"col\">Status</th><th scope=\"col\">Code</th><th scope=\"col\">Meaning</th></tr></thead>\n<tbody>\n")
	for _, r := range p.Refusals {
		w.markup("<tr><td>%s</td><td><a href=\"#%s\"><code>%s</code></a></td><td>%s</td></tr>\n", numbers(r.Statuses), r.Code, r.Code, r.Title)
	}
	w.markup("</tbody>\n</table>\n</section>\n")
}

func (w *page) problem(r *Refusal) {
	w.markup("<section id=\"%s\">\n<h3><code>%s</code>: %s</h3>\n<p>%s</p>\n<p>Status %s. %s %s</p>\n</section>\n",
		r.Code, r.Code, r.Title, r.Meaning, numbers(r.Statuses), r.retry(), r.notRun())
}

func (r *Refusal) retry() string {
	if r.Retry {
		return "Send the same request with the same key again, after the time in Retry-After."
	}
	return "The same request with the same key gets this again, unless its cause has gone."
}

func (r *Refusal) notRun() string {
	if r.NotRun {
		return "It says nothing about earlier requests with the key."
	}
	return ""
}

func (a *Answers) statuses() string {
	var ranges []string
	for _, r := range a.Statuses {
		switch r.To - r.From {
		case 0:
			ranges = append(ranges, strconv.Itoa(r.From))
		case 1:
			ranges = append(ranges, strconv.Itoa(r.From), strconv.Itoa(r.To))
		default:
			ranges = append(ranges, fmt.Sprintf("%d to %d", r.From, r.To))
		}
	}
	text := strings.Join(ranges, ", ")
	if a.With != "" {
		text += " with " + a.With
	}
	return text
}

func (a *Answers) consequence() string {
	switch a.Next {
	case Replay:
		return "gets the same answer, recorded"
	case Run:
		return "runs"
	default:
		return "is refused: the outcome is unknown"
	}
}

func numbers(list []int) string {
	var words []string
	for _, n := range list {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " or ")
}
