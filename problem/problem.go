// Package problem defines how a guard refuses a request: the codes, the RFC 9457 problem
// document, and the header field that names the code. Server and client share it, and it
// imports nothing but the standard library.
package problem

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Header is the response header field in which a guard names the code of its refusal, for
// example "Idempotency-Error: in-flight". The guard sets it on each refusal, also where the
// application writes the body in a format of its own. An answer without the field comes
// from the application, or from somebody in front of the guard. A browser shows the field to
// scripts of other origins only if Access-Control-Expose-Headers lists it.
const Header = "Idempotency-Error"

// ContentType is the media type of a [Document] in JSON.
const ContentType = "application/problem+json"

// A Code tells a client program why its request was refused. It is the value of [Header],
// and the member "code" of the problem document.
type Code string

// The codes of refusals, with the status of each.
const (
	KeyMissing        Code = "key-missing"        // 400: the route requires a key
	KeyInvalid        Code = "key-invalid"        // 400: the key is malformed
	BodyUnreadable    Code = "body-unreadable"    // 400, or 408 on a timeout: the body did not arrive, or an outer handler has read it
	BodyTooLarge      Code = "body-too-large"     // 413: the body is over the limit
	FingerprintFailed Code = "fingerprint-failed" // 400: the fingerprint function refused the request
	Unauthenticated   Code = "unauthenticated"    // 401: the scope function knows no caller
	ScopeUnresolved   Code = "scope-unresolved"   // 403: nobody to whom the key could belong
	ReplayDenied      Code = "replay-denied"      // 403: the caller may no longer see the recorded answer
	KeyUnknown        Code = "key-unknown"        // 404, only of LookupHandler: nothing is known of the key
	KeyReused         Code = "key-reused"         // 409: the key was used for another payload
	InFlight          Code = "in-flight"          // 409 and Retry-After: the first request is still running
	OutcomeUnknown    Code = "outcome-unknown"    // 409: the outcome of the run is unknown and it will not run again
	ResponseNotKept   Code = "response-not-kept"  // 409: it ran, but its answer was not kept
	NoAnswer          Code = "no-answer"          // 503 and Retry-After: the run has ended without a definite answer
	RolledBack        Code = "rolled-back"        // 503 and Retry-After: the run's transaction was rolled back; nothing has happened
	Misplaced         Code = "misplaced"          // 500: the server has put the guard where it cannot protect; this request was not run
	CannotCommit      Code = "cannot-commit"      // 500: the same, and another attempt would end in the same way
	AnswerUnreadable  Code = "answer-unreadable"  // 500: what is stored under the key cannot be read; nothing will run
	StoreUnavailable  Code = "store-unavailable"  // 503 and Retry-After: this request was not run, or its run did nothing
	TryLater          Code = "try-later"          // 503 and Retry-After: a function of the route cannot tell now, or time was over before the run
	ShuttingDown      Code = "shutting-down"      // 503 and Retry-After: this request was not run
)

// Retryable reports whether sending the same request again, with the same key, can
// succeed. Only refusals with these codes carry Retry-After.
func (c Code) Retryable() bool {
	return c == InFlight || c == NoAnswer || c == RolledBack || c == StoreUnavailable || c == TryLater || c == ShuttingDown
}

// NotRun reports whether a guard refuses with this code before it looks at the key: the
// request surely did not run. Any other code may say that an earlier request with the key is
// running, has run, or may have run.
func (c Code) NotRun() bool {
	switch c {
	case KeyMissing, KeyInvalid, BodyUnreadable, BodyTooLarge, FingerprintFailed,
		Unauthenticated, ScopeUnresolved, Misplaced, ShuttingDown:
		return true
	}
	return false
}

// Undone reports whether a guard refuses with this code after it has undone all that the run did:
// no request with the key has done anything.
func (c Code) Undone() bool { return c == RolledBack || c == CannotCommit }

// Codes returns the codes of this package, by status and name.
func Codes() []Code {
	return slices.SortedFunc(maps.Keys(texts), func(a, b Code) int {
		return cmp.Or(cmp.Compare(texts[a].Status, texts[b].Status), strings.Compare(string(a), string(b)))
	})
}

// Known reports whether c is one of the codes of this package.
func (c Code) Known() bool {
	_, ok := texts[c]
	return ok
}

// A Document is an RFC 9457 problem document: what a client gets instead of the handler's
// answer. A guard never puts a stored payload, a backend's error text or anything of
// another caller into it.
type Document struct {
	// Type is a URI for the kind of problem: the policy URL with the code as fragment, or
	// about:blank if the guard has no policy URL.
	Type string `json:"type"`
	// Title is the same short text for every problem of this code.
	Title string `json:"title"`
	// Status is the HTTP status of the answer.
	Status int `json:"status"`
	// Detail says in a sentence what to do about it.
	Detail string `json:"detail,omitempty"`
	// Code is the stable name of the problem.
	Code Code `json:"code"`
	// OriginalStatus is the status of the run's own answer, and OriginalLocation its
	// Location header, where the answer itself was not kept. They are missing where
	// nobody knows them. OriginalLocation is missing too where the route does not record
	// that field, and where a handler outside of the guard has set it.
	OriginalStatus   int    `json:"original_status,omitempty"`
	OriginalLocation string `json:"original_location,omitempty"`
	// Differs names the parts of the request that are not those of the request that the key is
	// bound to: method, path, query, content-type, body. A guard sets it only in the problem
	// [KeyReused], for the function of idempotency.WithErrorWriter. It is not in the JSON of the
	// document: the parts tell something of another request, which a scope may be shared with. It is a
	// hint, with the limits of event.Event.Differs: the body counts byte for byte, whatever the
	// fingerprint counts.
	Differs []string `json:"-"`
}

// New returns the document for a code, with its status, title and default detail. For a
// code that this package does not know, only the code is set.
func New(c Code) Document {
	d := texts[c]
	d.Code = c
	return d
}

// texts holds status, title and default detail of each code.
var texts = map[Code]Document{
	KeyMissing: {
		Status: 400, Title: "Idempotency key missing",
		Detail: "This operation requires an idempotency key.",
	},
	KeyInvalid: {
		Status: 400, Title: "Idempotency key invalid",
		Detail: "The idempotency key is malformed. This request was not run.",
	},
	BodyUnreadable: {
		Status: 400, Title: "Request body unreadable",
		Detail: "The request body did not arrive completely. This request was not run.",
	},
	BodyTooLarge: {
		Status: 413, Title: "Request body too large",
		Detail: "The request body is larger than this operation accepts. This request was not run.",
	},
	FingerprintFailed: {
		Status: 400, Title: "Request cannot be fingerprinted",
		Detail: "The request does not have the form that this operation identifies requests by. This request was not run.",
	},
	Unauthenticated: {
		Status: 401, Title: "Not authenticated",
		Detail: "The caller is not authenticated. This request was not run.",
	},
	ScopeUnresolved: {
		Status: 403, Title: "Scope unresolved",
		Detail: "It cannot be told whose idempotency key this is. This request was not run.",
	},
	ReplayDenied: {
		Status: 403, Title: "Replay denied",
		Detail: "The recorded answer may not be shown to this caller.",
	},
	KeyUnknown: {
		Status: 404, Title: "Idempotency key unknown",
		Detail: "No request with this idempotency key is known.",
	},
	KeyReused: {
		Status: 409, Title: "Idempotency key reused",
		Detail: "This idempotency key was used before with a different request. Use a new key for a new request.",
	},
	InFlight: {
		Status: 409, Title: "Request in flight",
		Detail: "A request with this idempotency key is still being processed. Retry to get its answer.",
	},
	OutcomeUnknown: {
		Status: 409, Title: "Outcome unknown",
		Detail: "An earlier request with this idempotency key ended without a definite outcome and will not be run again. Its outcome has to be settled first.",
	},
	ResponseNotKept: {
		Status: 409, Title: "Response not kept",
		Detail: "The request with this idempotency key was processed, but its answer was not kept. It will not be run again.",
	},
	NoAnswer: {
		Status: 503, Title: "No answer",
		Detail: "The request ended without a definite answer, and may have had its effect. Retry with the same key.",
	},
	RolledBack: {
		Status: 503, Title: "Rolled back",
		Detail: "The request could not be completed, and all that it did was undone. Retry with the same key.",
	},
	CannotCommit: {
		Status: 500, Title: "Cannot be committed",
		Detail: "The request could not be completed, and all that it did was undone. Another attempt would end in the same way.",
	},
	Misplaced: {
		Status: 500, Title: "Guard misplaced",
		Detail: "The server cannot protect this operation, because of a mistake in its program. This request was not run, and no repetition will be until the server is corrected.",
	},
	AnswerUnreadable: {
		Status: 500, Title: "Record unreadable",
		Detail: "The record of this idempotency key cannot be read. It does not tell whether a request with the key was run, and none will be.",
	},
	StoreUnavailable: {
		Status: 503, Title: "Idempotency store unavailable",
		Detail: "This request has done nothing; one that was sent before with the same idempotency key may have been run. Retry with the same key.",
	},
	TryLater: {
		Status: 503, Title: "Try again later",
		Detail: "The server cannot tell at the moment whether this request may run. This request was not run; one that was sent before with the same idempotency key may have been. Retry with the same key.",
	},
	ShuttingDown: {
		Status: 503, Title: "Server shutting down",
		Detail: "This request was not run; one that was sent before with the same idempotency key may have been. Retry with the same key.",
	},
}
