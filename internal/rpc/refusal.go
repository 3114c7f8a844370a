package rpc

import (
	"strings"
	"time"

	"example.com/idempotency/problem"
)

// Domain is the domain of the ErrorInfo of each refusal.
const Domain = "idempotency"

// retryDelay is when a client may try again; HTTP clients get it as Retry-After.
const retryDelay = time.Second

// StreamUnprotected is the reason for which a stream is refused. It is not the code of a problem.
const StreamUnprotected problem.Code = "stream-unprotected"

// A Refusal is what a call gets instead of an answer.
type Refusal struct {
	Code    Code
	Problem problem.Code
	Message string
	// Retry is when another try with the same key can succeed; 0 if none can.
	Retry time.Duration
}

// Refuse returns the refusal for a problem.
func Refuse(p problem.Code) *Refusal {
	r := &Refusal{Code: codeOf(p), Problem: p, Message: problem.New(p).Detail}
	if p == StreamUnprotected {
		r.Message = "A stream cannot be recorded, so this call with an idempotency key was not run."
	}
	if p.Retryable() {
		r.Retry = retryDelay
	}
	return r
}

// codeOf returns the code of a refusal. AlreadyExists, which many clients take for the success of
// an earlier try, stands only where an earlier try has succeeded.
func codeOf(p problem.Code) Code {
	switch p {
	case problem.KeyMissing, problem.KeyInvalid:
		return InvalidArgument
	case problem.Unauthenticated:
		return Unauthenticated
	case problem.ScopeUnresolved:
		return PermissionDenied
	case problem.KeyReused, problem.OutcomeUnknown:
		return FailedPrecondition
	case problem.InFlight:
		return Aborted
	case problem.ResponseNotKept:
		return AlreadyExists
	case problem.NoAnswer, problem.RolledBack, problem.StoreUnavailable, problem.TryLater, problem.ShuttingDown:
		return Unavailable
	case problem.AnswerUnreadable:
		return DataLoss
	case StreamUnprotected:
		return Unimplemented
	default:
		return Internal
	}
}

// Reason returns the reason of the ErrorInfo.
func (r *Refusal) Reason() string {
	return strings.ToUpper(strings.ReplaceAll(string(r.Problem), "-", "_"))
}

// ProblemOf returns the code that the ErrorInfo of a guard's refusal stands for, or nothing.
func ProblemOf(domain, reason string) problem.Code {
	if domain != Domain {
		return ""
	}
	return problem.Code(strings.ToLower(strings.ReplaceAll(reason, "_", "-")))
}

// Metadata returns the metadata of the ErrorInfo.
func (r *Refusal) Metadata() map[string]string { return map[string]string{"code": string(r.Problem)} }

// Header calls set with each field of metadata that a refusal has. They are those of a refusal over
// HTTP, for gateways and for clients that do not know the details.
func (r *Refusal) Header(set func(name, value string)) {
	set(strings.ToLower(problem.Header), string(r.Problem))
	if r.Retry > 0 {
		set("retry-after", "1")
	}
}
