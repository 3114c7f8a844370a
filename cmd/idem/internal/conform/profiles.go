package conform

import (
	"net/http"

	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// This file has the profiles. Each rule says where it stands.

// Profiles returns the profiles.
func Profiles() []Profile { return []Profile{ietf(), stripe(), ours()} }

// rules gives several checks one rule.
func rules(to map[string]Rule, level report.Level, says string, ids ...string) {
	for _, id := range ids {
		to[id] = Rule{level, says}
	}
}

// ietf is the draft of the IETF. What it asks of clients only is no rule for a server.
func ietf() Profile {
	const draft = "draft-ietf-httpapi-idempotency-key-header-07, "
	r := map[string]Rule{}
	rules(r, report.Should, draft+"section 2.6 (first time request: processed normally)", "first-answer")
	rules(r, report.Must, draft+"section 1 (the effect of several identical requests is that of one; duplicate records must not be allowed)",
		"first-effect", "replay-effect", "concurrent-effect", "cut-effect", "gone-effect", "lost-effect")
	rules(r, report.Must, draft+"section 2 (the key is what retries are recognized by)", "other-key", "key-last-byte", "key-case")
	rules(r, report.Should, draft+"section 2.6 (retry: the result of the previously completed operation)",
		"replay-status", "replay-body", "replay-header", "replay-trailer", "lost-answer", "cut-answer", "gone-answer", "crash-answer", "mismatch-kept", "concurrent-answer")
	rules(r, report.Should, draft+"section 2.7 (another payload: 422)", "mismatch-body", "mismatch-status", "mismatch-effect", "json-effect", "concurrent-payloads")
	rules(r, report.Must, draft+"section 2.1 (the value is a String, sf-string of RFC 8941)", "key-quoted")
	rules(r, report.Should, draft+"section 2.7 (a missing key: 400, where it is required)", "key-missing")
	rules(r, report.Should, draft+"section 5 (validate the key as published)", "key-empty", "key-list", "key-ascii")
	rules(r, report.Should, draft+"section 2.1 (not more than one field)", "key-twice")
	rules(r, report.Must, draft+"section 2.6 (concurrent request: a resource conflict error), section 2.7 (409)", "concurrent-status")
	rules(r, report.Should, draft+"section 5 (a composite key against leaks to other clients)", "scope-answer", "scope-run", "scope-stranger")
	rules(r, report.Should, draft+"section 2.3 (validity and expiry)", "ttl-kept")
	rules(r, report.Should, draft+"section 2.7 (a body with a link to documentation)", "problem-link")
	return Profile{
		Name: "ietf-07", Source: "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07",
		KeyHeader: "Idempotency-Key", Quoted: true, Raw: true,
		Mismatch: []int{http.StatusUnprocessableEntity}, InFlight: []int{http.StatusConflict}, Missing: []int{http.StatusBadRequest},
		Rules: r,
	}
}

// stripe is what Stripe says of version 1 of its API.
func stripe() Profile {
	const page = "docs.stripe.com/api/idempotent_requests"
	r := map[string]Rule{}
	rules(r, report.Must, page+" (retries do not perform the operation twice)", "first-answer", "first-effect", "replay-effect", "concurrent-effect", "cut-effect", "gone-effect", "lost-effect")
	rules(r, report.Must, page+" (the status code and body of the first request, for all that follow)", "replay-status", "replay-body", "lost-answer", "crash-answer", "mismatch-kept")
	rules(r, report.Must, page+" (the key is what retries are recognized by)", "other-key", "key-last-byte", "key-case", "key-raw")
	rules(r, report.Must, page+" (parameters are compared, and it errors if they are not the same)", "mismatch-body", "mismatch-effect", "concurrent-payloads")
	rules(r, report.Should, page+" (a request that conflicts with one that is executing is not saved, and can be retried)", "concurrent-answer", "gone-answer", "cut-answer")
	rules(r, report.Must, page+" (up to 255 characters)", "key-longest")
	rules(r, report.Must, page+" (pruned when at least 24 hours old)", "ttl-kept")
	rules(r, report.Should, page+" (a new request if a key is reused after it was pruned)", "ttl-end")
	rules(r, report.Should, "docs.stripe.com/error-low-level (Idempotent-Replayed: true)", "replay-mark")
	rules(r, report.Should, "docs.stripe.com/api/errors (idempotency_error: 400; a conflict with another request: 409)", "mismatch-status", "concurrent-status", "problem-document")
	optional := false
	return Profile{
		Name: "stripe", Source: "https://docs.stripe.com/api/idempotent_requests",
		KeyHeader: "Idempotency-Key", Raw: true, MaxKey: 255, Required: &optional,
		Mismatch: []int{http.StatusBadRequest}, InFlight: []int{http.StatusConflict},
		Mark: "Idempotent-Replayed", Refusals: "stripe", Rules: r,
	}
}

// ours is what a guard of this library does by default.
func ours() Profile {
	const answers = "docs/reference/answers.md"
	r := map[string]Rule{}
	rules(r, report.Must, "README.md (1. one run at a time)", "concurrent-effect", "concurrent-payloads")
	rules(r, report.Must, "README.md (2. one answer)", "first-answer", "replay-status", "replay-body", "replay-header", "replay-trailer", "concurrent-answer", "lost-answer", "mismatch-kept", "ttl-kept")
	rules(r, report.Must, "README.md (3. no silent second run)", "first-effect", "replay-effect", "cut-effect", "gone-effect", "lost-effect", "json-effect")
	rules(r, report.Must, "README.md (4. no cross-talk)", "other-key", "key-last-byte", "key-case", "scope-answer", "scope-stranger", "mismatch-effect", "mismatch-silent")
	rules(r, report.Must, answers+" (same key, other payload: 409 key-reused)", "mismatch-body", "mismatch-status", "mismatch-method", "mismatch-path", "mismatch-query", "mismatch-type")
	rules(r, report.Must, answers+" (a malformed key: 400 key-invalid)", "key-empty", "key-twice", "key-list", "key-ascii", "key-too-long")
	rules(r, report.Must, "docs/reference/keys.md (the forms of a key)", "key-quoted", "key-raw", "key-forms", "key-longest")
	rules(r, report.Must, answers+" (no key)", "key-missing")
	rules(r, report.Must, answers+" (in flight: 409 with Retry-After; or waits under WithWait)", "concurrent-status", "concurrent-retry-after")
	rules(r, report.Must, answers+" (the client disconnects: the run goes on)", "cut-answer", "gone-answer")
	rules(r, report.Must, answers+" (Idempotent-Replayed)", "replay-mark")
	rules(r, report.Must, answers+" (fields that are not recorded)", "replay-cookie")
	rules(r, report.Must, answers+" (refusals are problem documents, with their code in a field)", "problem-document", "problem-code")
	rules(r, report.Should, "docs/reference/keys.md (whose key it is)", "scope-run")
	rules(r, report.Should, "docs/explanation/durability.md (what a store may lose)", "crash-answer", "crash-run")
	rules(r, report.Should, "docs/how-to/policy.md (the type of a problem leads to its explanation)", "problem-link")
	rules(r, report.Must, "docs/how-to/choosing.md (TTL)", "ttl-end")
	bad := []int{http.StatusBadRequest}
	return Profile{
		Name: "ours", Source: answers,
		KeyHeader: "Idempotency-Key", Raw: true, MaxKey: 255,
		Mismatch: []int{http.StatusConflict}, InFlight: []int{http.StatusConflict}, Missing: bad, Invalid: bad, Waits: true,
		Mark: "Idempotent-Replayed", Code: "Idempotency-Error", Refusals: "problem", Rules: r,
	}
}
