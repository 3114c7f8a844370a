// Package policy publishes what an API promises about idempotency keys. A [Policy] is what the
// settings of a guard mean for the clients of one route. Guard.Policy of package idempotency
// makes it, so that it says what the guard does.
//
// The package renders policies for people and for programs ([Handler]), and as a part of an
// OpenAPI document ([Policy.OpenAPI]). It imports only the standard library and package problem.
//
//   - policy.go: the data
//   - rule.go: the same data as sentences
//   - handler.go: the page and its JSON form, over HTTP
//   - page.go: the page
//   - openapi.go, describe.go: the fragment of an OpenAPI document, and how it is added to one
package policy

import (
	"encoding/json"
	"time"

	"example.com/idempotency/problem"
)

// A Policy says how one route treats idempotency keys. Its JSON form has durations in whole
// seconds, and the rules of [Policy.Rules].
type Policy struct {
	// Route is the label of the route. It is empty if the program gave none.
	Route string `json:"route,omitempty"`
	// URL is where the policy is published. The type of a problem is this URL with the code as
	// fragment, and about:blank without a URL.
	URL string `json:"url,omitempty"`

	// Methods are the protected methods. A request with any other method needs no key and is
	// not protected by one.
	Methods []string `json:"methods"`
	// Required says that a request without a key is refused. Otherwise it runs unprotected.
	Required bool `json:"required"`
	// Key says how a client sends the key.
	Key Key `json:"key"`
	// Shared says that all callers share one set of keys. Otherwise each has its own.
	Shared bool `json:"shared"`
	// Binding says what a repetition must have in common with the first request.
	Binding Binding `json:"binding"`
	// Rebinding says that a key may come with a different request after one that was turned away
	// before anything was done.
	Rebinding bool `json:"rebinding"`
	// MaxRequestBody is the largest body of a request, in bytes.
	MaxRequestBody int64 `json:"max_request_body"`

	// TTL is how long a recorded answer is replayed.
	TTL time.Duration `json:"-"`
	// MaxResponseBody is the largest body of an answer that is kept, in bytes.
	MaxResponseBody int64 `json:"max_response_body"`
	// Wait is how long a request waits for the answer of another one with its key.
	Wait time.Duration `json:"-"`
	// Answers say which answers count.
	Answers []Answers `json:"answers"`

	// Hold says that a key whose outcome is unknown is held: no request with it runs. Otherwise
	// the next one runs again.
	Hold bool `json:"hold"`
	// Attempts is the number of runs after which a key is held although Hold is not set. Zero stands
	// for no limit.
	Attempts int `json:"attempts,omitempty"`
	// HeldFor is how long a key is held at most. Zero stands for no limit: it is held until the
	// outcome is settled.
	HeldFor time.Duration `json:"-"`
	// FailOpen says that a request runs unprotected when the store of keys is unavailable.
	FailOpen bool `json:"fail_open"`

	// ReplayedHeader is the response header field that marks a replay.
	ReplayedHeader string `json:"replayed_header"`
	// ErrorHeader is the response header field with the code of a refusal.
	ErrorHeader string `json:"error_header"`
	// ExpiryHeader is the response header field that says for how many seconds the key is good.
	// Without such a field it is empty.
	ExpiryHeader string `json:"expiry_header,omitempty"`
	// Problems says that refusals are problem documents (RFC 9457). Otherwise they have a form
	// of the API's own.
	Problems bool `json:"problems"`
	// Refusals are those that a request can get, by status and code.
	Refusals []Refusal `json:"refusals"`
}

// A Key says how a client sends the key.
type Key struct {
	// Header is the request header field that carries the key. It is empty if the key is taken
	// from elsewhere in the request.
	Header string `json:"header,omitempty"`
	// Strict says that the key must be in double quotes.
	Strict bool `json:"strict"`
	// MaxBytes is the length of the longest key.
	MaxBytes int `json:"max_bytes"`
}

// A Binding names what a repetition must have in common with the first request.
type Binding string

// The bindings.
const (
	// Exact: the method, the path, the query, Content-Type, Content-Encoding, and every byte
	// of the body.
	Exact Binding = "exact"
	// JSON: the same, but of a JSON body only the meaning.
	JSON Binding = "json"
	// Own: what the operation says.
	Own Binding = "own"
)

// Answers are a set of answers with the same consequence.
type Answers struct {
	// Outcome is the judgement on the run: final, not-executed or unknown.
	Outcome string `json:"outcome"`
	// Next is what the next request with the key gets.
	Next Next `json:"next"`
	// With is a response header field that the answers have. Otherwise it is empty.
	With string `json:"with,omitempty"`
	// Statuses are those of the answers.
	Statuses []Range `json:"statuses"`
}

// A Range is the statuses from one to another, both included.
type Range struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Next says what the next request with the key gets.
type Next string

// What the next request gets.
const (
	Replay  Next = "replay"  // the recorded answer
	Run     Next = "run"     // it runs
	Refused Next = "refused" // a problem: the key is held
)

// A Refusal is one way in which a request is refused.
type Refusal struct {
	Code problem.Code `json:"code"`
	// Statuses are those that the refusal may have. The first one is the usual one.
	Statuses []int `json:"statuses"`
	// Title is the short text of the problem, and Meaning a sentence about it.
	Title   string `json:"title"`
	Meaning string `json:"meaning"`
	// Retry says that the same request with the same key may succeed later. The refusal then
	// has Retry-After.
	Retry bool `json:"retry"`
	// NotRun says that the refusal comes before anybody looks at the key: it says nothing about
	// earlier requests.
	NotRun bool `json:"not_run"`
}

// NewRefusal returns the refusal for a code as package problem describes it.
func NewRefusal(code problem.Code) Refusal {
	d := problem.New(code)
	return Refusal{
		Code: code, Statuses: []int{d.Status}, Title: d.Title, Meaning: d.Detail,
		Retry: code.Retryable(), NotRun: code.NotRun(),
	}
}

// MarshalJSON returns the JSON form.
func (p Policy) MarshalJSON() ([]byte, error) {
	type data Policy // without this method
	return json.Marshal(struct {
		data
		TTL     int64  `json:"ttl_seconds"`
		Wait    int64  `json:"wait_seconds"`
		HeldFor int64  `json:"held_for_seconds,omitempty"`
		Rules   []Rule `json:"rules"`
	}{data(p), seconds(p.TTL), seconds(p.Wait), seconds(p.HeldFor), p.Rules()})
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
