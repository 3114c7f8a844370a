package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// A Code tells a client program why its request was refused. It is the member "code"
// of the problem document.
type Code string

// The codes of refusals, with the status each is answered with.
const (
	CodeKeyMissing        Code = "key-missing"        // 400: the route requires a key
	CodeKeyInvalid        Code = "key-invalid"        // 400: the key is malformed
	CodeBodyUnreadable    Code = "body-unreadable"    // 400, or 408 on a timeout: the body did not arrive, or an outer handler has read it
	CodeBodyTooLarge      Code = "body-too-large"     // 413: the body is over the limit
	CodeFingerprintFailed Code = "fingerprint-failed" // 400: the fingerprint function refused the request
	CodeScopeUnresolved   Code = "scope-unresolved"   // 403: nobody to whom the key could belong
	CodeReplayDenied      Code = "replay-denied"      // 403: the caller may no longer see the recorded answer
	CodeKeyUnknown        Code = "key-unknown"        // 404, of LookupHandler: nothing is known of the key
	CodeKeyReused         Code = "key-reused"         // 409: the key was used for another payload
	CodeInFlight          Code = "in-flight"          // 409 and Retry-After: the first request is still running
	CodeOutcomeUnknown    Code = "outcome-unknown"    // 409: the outcome of the run is unknown and it will not run again
	CodeResponseNotKept   Code = "response-not-kept"  // 409: it ran, but its answer was too large to keep
	CodeAnswerUnreadable  Code = "answer-unreadable"  // 500: the recorded answer cannot be read; it will not run again
	CodeStoreUnavailable  Code = "store-unavailable"  // 503 and Retry-After: this request was not run
	CodeShuttingDown      Code = "shutting-down"      // 503 and Retry-After: this request was not run
)

// A Problem is an RFC 9457 problem document: what a client gets instead of the
// handler's answer. It never contains a stored payload, a backend's error text or
// anything of another caller.
type Problem struct {
	// Type is a URI for the kind of problem: the policy URL with the code as
	// fragment, or about:blank without [WithPolicyURL].
	Type string `json:"type"`
	// Title is the same short text for every problem of this code.
	Title string `json:"title"`
	// Status is the HTTP status of the answer.
	Status int `json:"status"`
	// Detail says what to do about it, in a sentence.
	Detail string `json:"detail,omitempty"`
	// Code is the stable name of the problem.
	Code Code `json:"code"`
	// OriginalStatus is the status of the run's own answer, and OriginalLocation its
	// Location header, where the answer itself was too large to keep.
	OriginalStatus   int    `json:"original_status,omitempty"`
	OriginalLocation string `json:"original_location,omitempty"`
}

// problemTexts holds status, title and default detail of each code.
var problemTexts = map[Code]Problem{
	CodeKeyMissing: {
		Status: http.StatusBadRequest, Title: "Idempotency key missing",
		Detail: "This operation requires an idempotency key.",
	},
	CodeKeyInvalid: {
		Status: http.StatusBadRequest, Title: "Idempotency key invalid",
	},
	CodeBodyUnreadable: {
		Status: http.StatusBadRequest, Title: "Request body unreadable",
		Detail: "The request body did not arrive completely. This request was not run.",
	},
	CodeBodyTooLarge: {
		Status: http.StatusRequestEntityTooLarge, Title: "Request body too large",
		Detail: "The request body is larger than this operation accepts. This request was not run.",
	},
	CodeFingerprintFailed: {
		Status: http.StatusBadRequest, Title: "Request cannot be fingerprinted",
		Detail: "The request does not have the form that this operation identifies requests by. This request was not run.",
	},
	CodeScopeUnresolved: {
		Status: http.StatusForbidden, Title: "Scope unresolved",
		Detail: "It cannot be told whose idempotency key this is. This request was not run.",
	},
	CodeReplayDenied: {
		Status: http.StatusForbidden, Title: "Replay denied",
		Detail: "The recorded answer may not be shown to this caller.",
	},
	CodeKeyUnknown: {
		Status: http.StatusNotFound, Title: "Idempotency key unknown",
		Detail: "No request with this idempotency key is known.",
	},
	CodeKeyReused: {
		Status: http.StatusConflict, Title: "Idempotency key reused",
		Detail: "This idempotency key was used before with a different request. Use a new key for a new request.",
	},
	CodeInFlight: {
		Status: http.StatusConflict, Title: "Request in flight",
		Detail: "A request with this idempotency key is still being processed. Retry to get its answer.",
	},
	CodeOutcomeUnknown: {
		Status: http.StatusConflict, Title: "Outcome unknown",
		Detail: "An earlier request with this idempotency key ended without a definite outcome and will not be run again. Its outcome has to be settled first.",
	},
	CodeResponseNotKept: {
		Status: http.StatusConflict, Title: "Response not kept",
		Detail: "The request with this idempotency key was processed, but its answer was too large to be kept. It will not be run again.",
	},
	CodeAnswerUnreadable: {
		Status: http.StatusInternalServerError, Title: "Recorded answer unreadable",
		Detail: "The answer recorded for this idempotency key cannot be read. The request will not be run again.",
	},
	CodeStoreUnavailable: {
		Status: http.StatusServiceUnavailable, Title: "Idempotency store unavailable",
		Detail: "This request was not run; one that was sent before with the same idempotency key may have been. Retry with the same key.",
	},
	CodeShuttingDown: {
		Status: http.StatusServiceUnavailable, Title: "Server shutting down",
		Detail: "This request was not run; one that was sent before with the same idempotency key may have been. Retry with the same key.",
	},
}

func newProblem(code Code) Problem {
	p := problemTexts[code]
	p.Code = code
	return p
}

// retryAfterSeconds is the Retry-After of the problems that a retry with the same key
// can end. One second is the smallest value that every client understands.
var retryAfterSeconds = []string{strconv.Itoa(1)}

// retryable reports whether sending the same request again can succeed. Only these
// problems carry Retry-After, so that a generic client tells the kinds of 409 apart.
func (c Code) retryable() bool {
	return c == CodeInFlight || c == CodeStoreUnavailable || c == CodeShuttingDown
}

// refuse answers a request with a problem instead of a run.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, p Problem) {
	h := w.Header()
	h["Cache-Control"] = []string{"no-store"}
	if p.Code.retryable() {
		h["Retry-After"] = retryAfterSeconds
	}
	p.Type = "about:blank"
	if g.set.policyURL != "" {
		p.Type = g.set.policyURL + "#" + string(p.Code)
		h.Add("Link", "<"+g.set.policyURL+`>; rel="describedby"`)
	}
	g.set.errorWriter(w, r, p)
}

// writeProblem is the default of WithErrorWriter.
func writeProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: strings and an int
		body = nil
	}
	h := w.Header()
	h["Content-Type"] = []string{"application/problem+json"}
	if lengthAllowed(h, p.Status, r.Method) {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone needs no answer
}
