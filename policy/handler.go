package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency/problem"
)

// This file serves policies over HTTP. Nothing depends on the request but the form, so both
// forms are made once.

// maxAge is how long a cache may show the policy without asking. A change of the settings comes
// with a new process, and is seen by then.
const maxAge = 5 * time.Minute

// Handler returns a handler that publishes policies: as a page, or in JSON for a client that
// prefers application/json. The page has an anchor for each code of package problem, so that it
// can be the URL of the policies.
//
// There must be at least one policy. If there are several, their routes must differ; otherwise
// Handler panics, as http.ServeMux.Handle does on a pattern that is there already.
func Handler(policies ...Policy) http.Handler {
	check(policies)
	problems := problemsOf(policies)
	document, err := json.Marshal(struct {
		Routes   []Policy  `json:"routes"`
		Problems []Refusal `json:"problems"`
	}{policies, problems})
	if err != nil { // cannot happen: strings and numbers
		panic(err)
	}
	return &handler{
		page: newForm("text/html; charset=utf-8", renderPage(policies, problems)),
		json: newForm("application/json", document),
	}
}

func check(policies []Policy) {
	if len(policies) == 0 {
		panic("policy: Handler: no policy")
	}
	seen := make(map[string]bool)
	for _, p := range policies {
		if seen[p.Route] || p.Route == "" && len(policies) > 1 {
			panic(fmt.Sprintf("policy: Handler: route %q is not the name of one policy; give each route a label of its own", p.Route))
		}
		seen[p.Route] = true
	}
}

// problemsOf returns every problem that there is, with the statuses of all policies. Those that
// no route has are among them, because an old link, or a handler that looks keys up, may lead
// to them.
func problemsOf(policies []Policy) []Refusal {
	var problems []Refusal
	for _, code := range problem.Codes() {
		r := NewRefusal(code)
		var statuses []int
		for _, p := range policies {
			for _, own := range p.Refusals {
				if own.Code == code {
					statuses = append(statuses, own.Statuses...)
				}
			}
		}
		if len(statuses) > 0 {
			slices.Sort(statuses)
			r.Statuses = slices.Compact(statuses)
		}
		problems = append(problems, r)
	}
	return problems
}

type handler struct{ page, json form }

// A form is one way to show the policies.
type form struct {
	contentType, etag string
	body              []byte
}

func newForm(contentType string, body []byte) form {
	sum := sha256.Sum256(body)
	return form{contentType, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, body}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	f := &h.page
	if prefersJSON(r.Header.Values("Accept")) {
		f = &h.json
	}
	header.Add("Vary", "Accept")
	header.Set("Content-Type", f.contentType)
	header.Set("Etag", f.etag)
	header.Set("Cache-Control", "public, max-age="+strconv.FormatInt(seconds(maxAge), 10))
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body)) // conditions, ranges, HEAD
}

// prefersJSON reports whether a client prefers JSON to a page. A client that accepts both, or
// neither, gets the page: the address is the type of a problem, and RFC 9457 wants a text for
// people there.
func prefersJSON(accept []string) bool {
	page, document := preference(accept, "text/html"), preference(accept, "application/json")
	return document > page
}

// preference returns the weight that a client gives a media type: that of the most specific
// range that includes it (RFC 9110 section 12.5.1).
func preference(accept []string, mediaType string) float64 {
	kind, _, _ := strings.Cut(mediaType, "/")
	weight, specific := 0.0, 0
	for accepted := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameters, err := mime.ParseMediaType(accepted)
		if err != nil {
			continue
		}
		rank := slices.Index([]string{"*/*", kind + "/*", mediaType}, name) + 1
		if rank == 0 || rank < specific {
			continue
		}
		q := 1.0
		if value, ok := parameters["q"]; ok {
			if q, err = strconv.ParseFloat(value, 64); err != nil || !(q >= 0 && q <= 1) {
				continue
			}
		}
		weight, specific = q, rank
	}
	return weight
}
