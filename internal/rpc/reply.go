// Package rpc protects unary calls, for the modules that make interceptors of it. It knows the
// codes of gRPC, which Connect shares, and no framework.
//
//   - reply.go: an answer, how it is judged and stored
//   - server.go: one call
//   - refusal.go: what a call gets instead of an answer
package rpc

import (
	"fmt"
	"net/textproto"
	"slices"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/problem"
)

// A Code is a status code of gRPC.
type Code uint32

// The codes of gRPC.
const (
	OK Code = iota
	Canceled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

// CodeOfError returns the code of an error. One with the code OK is a mistake of the program, and
// not a success without a message.
func CodeOfError(code uint32) Code {
	if c := Code(code); c != OK {
		return c
	}
	return Unknown
}

// Outcome is the rule for an answer with this code. A definite refusal is an answer like any
// other. Two codes say that the call was turned away before anything was done. The rest, and codes
// that are not known, leave open what has happened.
func (c Code) Outcome() idempotency.Outcome {
	switch c {
	case OK, InvalidArgument, NotFound, AlreadyExists, PermissionDenied, FailedPrecondition, OutOfRange, Unimplemented:
		return idempotency.Final
	case ResourceExhausted, Unauthenticated:
		return idempotency.NotExecuted
	default:
		return idempotency.Unknown
	}
}

// A Reply is the answer to a unary call: a message, or an error.
type Reply struct {
	Code    Code
	Message string   // of an error
	Details []Detail // likewise
	Type    string   // the full name of the type of the message
	Body    []byte   // the message
	// Header and Trailer are what the handler has set; Meta is the metadata of an error.
	Header, Trailer, Meta []answer.Field
	// Problem is the code of the refusal of another guard that the handler passes on.
	Problem problem.Code
	// Judged is what the program's own function makes of the answer; 0 if there is none.
	Judged idempotency.Outcome
	// Err says why the answer cannot be stored.
	Err error
}

// A Detail is one detail of an error.
type Detail struct {
	Type  string // its URL
	Value []byte
}

var _ adapter.Judged = (*Reply)(nil)

// Outcome implements [adapter.Judged]. The refusal of another guard is judged as by
// [idempotency.DefaultOutcome].
func (r *Reply) Outcome() idempotency.Outcome {
	switch {
	case r.Judged != 0:
		return r.Judged
	case r.Problem == "":
		return r.Code.Outcome()
	case r.Problem.NotRun(), r.Problem.Undone():
		return idempotency.NotExecuted
	default:
		return idempotency.Unknown
	}
}

// Refused implements [adapter.Judged].
func (r *Reply) Refused() bool { return r.Code != OK }

// leaveOut removes fields with these canonical names from what is recorded.
func (r *Reply) leaveOut(names answer.Names) {
	left := func(f answer.Field) bool { return names.Has(textproto.CanonicalMIMEHeaderKey(f.Name)) }
	for _, fields := range []*[]answer.Field{&r.Header, &r.Trailer, &r.Meta} {
		*fields = slices.DeleteFunc(*fields, left)
	}
}

// deniesEffect reports whether the answer tells the client that nothing was done.
func (r *Reply) deniesEffect() bool { return r.Code != OK && r.Code.Outcome() != idempotency.Unknown }

// codec stores replies as answers of which some fields are not fields of a header: no name of one
// begins with a colon.
type codec struct{}

const (
	// statusOfOK is the status under which a reply with the code OK is stored.
	statusOfOK = 100

	messageField = ":message"
	typeField    = ":type"
	detailField  = ":detail"
)

// answer returns the answer as which a reply is stored.
func (r *Reply) answer() answer.Answer {
	code := r.Code
	if code > Unauthenticated {
		code = Unknown
	}
	a := answer.Answer{Kind: answer.KindValue, Status: statusOfOK + int(code), Header: r.Header, Trailer: r.Trailer, Body: r.Body}
	a.Added = append(a.Added, answer.Field{Name: messageField, Values: []string{r.Message}}, answer.Field{Name: typeField, Values: []string{r.Type}})
	for _, d := range r.Details {
		a.Added = append(a.Added, answer.Field{Name: detailField, Values: []string{d.Type, string(d.Value)}})
	}
	a.Added = append(a.Added, r.Meta...)
	return a
}

// Fits reports whether a reply may be kept: its message has at most limit bytes, and all else has at
// most [answer.MaxFields].
func (r *Reply) Fits(limit int64) bool {
	a := r.answer()
	return a.Fits(limit)
}

// Encode returns the stored form of a reply.
func Encode(r *Reply) []byte {
	a := r.answer()
	return a.Encode("", [32]byte{})
}

// Marshal implements [idempotency.Codec].
func (codec) Marshal(v any) ([]byte, error) {
	r := v.(*Reply)
	if r.Err != nil {
		return nil, r.Err
	}
	return Encode(r), nil
}

// Unmarshal implements [idempotency.Codec].
func (codec) Unmarshal(data []byte, v any) error {
	a, err := answer.Decode(data, "", [32]byte{}, nil)
	if err != nil {
		return err
	}
	r := &Reply{Code: Code(a.Status - statusOfOK), Header: a.Header, Trailer: a.Trailer, Body: a.Body}
	for _, f := range a.Added {
		switch n := len(f.Values); {
		case f.Name == messageField && n == 1:
			r.Message = f.Values[0]
		case f.Name == typeField && n == 1:
			r.Type = f.Values[0]
		case f.Name == detailField && n == 2:
			r.Details = append(r.Details, Detail{Type: f.Values[0], Value: []byte(f.Values[1])})
		default:
			r.Meta = append(r.Meta, f)
		}
	}
	if r.Code > Unauthenticated {
		return fmt.Errorf("unknown code %d", r.Code)
	}
	*v.(**Reply) = r
	return nil
}
