// Package profile describes what servers say about idempotency keys: where they expect the
// key, how they mark a recorded answer, and by which status, header field or member of the
// body they tell that a request is in flight or that a key was used before. A [Server] is
// data, and the function that returns it names its sources. Package client reads answers by it.
package profile

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency/internal/token"
)

// A Server is what one kind of server publishes about its keys. The zero Server says
// nothing but what HTTP itself says.
type Server struct {
	// Name is used in error messages.
	Name string

	// KeyHeader is the request header field that carries the key.
	KeyHeader string
	// KeyMember is the member of the JSON body that carries the key, for a server that
	// reads no header field. The program puts the key there itself.
	KeyMember string
	// TTL is how long the server surely remembers a key, at least a second. Zero leaves that to the client.
	TTL time.Duration

	// Replayed is the response header field that marks a recorded answer. Without a Value,
	// the presence of the field is the mark.
	Replayed Field
	// Echo is the response header field that repeats the key, for a server that does so on
	// every answer of its own.
	Echo string
	// Expiry is the response header field in which the server says for how many seconds it
	// remembers the key, counted from when the request was sent.
	Expiry string
	// RetryHint is the response header field by which the server says "true" or "false" to
	// whether another attempt makes sense.
	RetryHint string

	// MediaType is that of the documents that Rules look into. Empty stands for any JSON.
	MediaType string
	// Rules are tried in their order. The first one that matches tells the meaning.
	Rules []Rule
	// Classify, if set, is asked before the rules. It gets the beginning of the body, up to
	// 64 KiB, of answers with status 400 and above, and returns [Silent] to leave an answer
	// to the rules. It must not read the body of the response.
	Classify func(resp *http.Response, body []byte) Meaning
}

// A Field is a response header field. An empty Value stands for any, unless a field says
// otherwise.
type Field struct{ Name, Value string }

// A Rule gives the answers that it matches a meaning. All that is set must match.
type Rule struct {
	// Status lists the statuses that match. None stands for any.
	Status []int
	// Header must be in the answer.
	Header Field
	// Member is a path into the JSON document of the answer, such as "error.code". Where
	// the path meets an array, any of its elements may match.
	Member string
	// Value is what the member must be, as text and regardless of case. A "*" at its
	// beginning or end stands for anything; the empty Value for any that is there.
	Value string
	// Means is the meaning of the answer.
	Means Meaning
}

// A Meaning is what an answer says about the request with the key.
type Meaning int

// The meanings of answers.
const (
	// Silent: the answer says nothing about the key. It may come from the application, or
	// from a proxy in front of it.
	Silent Meaning = iota
	// Own: the application itself has answered this request, and an earlier attempt with
	// the same key has not been executed with another result.
	Own
	// InFlight: another attempt with the key is being executed.
	InFlight
	// NotRun: this attempt was not executed, and the next one may be.
	NotRun
	// Refused: this attempt was refused for a reason of its own. The answer says nothing about
	// other attempts with the key.
	Refused
	// Reused: the key was used for another request, and this one was not executed.
	Reused
	// Held: the server does not know the outcome of an earlier attempt, and executes none
	// before somebody has settled it.
	Held
	// Lost: an attempt with the key was executed, and its answer cannot be had.
	Lost
	// Unanswered: this attempt was begun and ended without an answer. It may have been
	// executed, and the next one may be.
	Unanswered
)

// String returns the name of the meaning.
func (m Meaning) String() string {
	names := [...]string{"silent", "own", "in-flight", "not-run", "refused", "reused", "held", "lost", "unanswered"}
	if m < 0 || int(m) >= len(names) {
		return "none"
	}
	return names[m]
}

// Validate reports what is wrong with the data, all at once.
func (s *Server) Validate() error {
	var errs []error
	field := func(what, name string) {
		if name != "" && !token.Is(name) {
			errs = append(errs, fmt.Errorf("profile %s: %s: %q is not a field name", s.Name, what, name))
		}
	}
	field("KeyHeader", s.KeyHeader)
	field("Replayed", s.Replayed.Name)
	field("Echo", s.Echo)
	field("Expiry", s.Expiry)
	field("RetryHint", s.RetryHint)
	if (s.KeyHeader == "") == (s.KeyMember == "") {
		errs = append(errs, fmt.Errorf("profile %s: either KeyHeader or KeyMember must be set", s.Name))
	}
	if s.TTL != 0 && s.TTL < time.Second {
		errs = append(errs, fmt.Errorf("profile %s: TTL %v is shorter than a second", s.Name, s.TTL))
	}
	for i, r := range s.Rules {
		field(fmt.Sprintf("rule %d", i+1), r.Header.Name)
		if len(r.Status) == 0 && r.Header.Name == "" && r.Member == "" {
			errs = append(errs, fmt.Errorf("profile %s: rule %d matches every answer", s.Name, i+1))
		}
	}
	return errors.Join(errs...)
}

// Clone returns a copy that shares nothing with s, to be changed and used instead.
func (s Server) Clone() Server {
	s.Rules = slices.Clone(s.Rules)
	for i := range s.Rules {
		s.Rules[i].Status = slices.Clone(s.Rules[i].Status)
	}
	return s
}
