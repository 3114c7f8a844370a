package client

// This file rules on answers, by two tables that docs/reference/client.md shows.

// A Verdict is what the result of an attempt says about the request.
type Verdict int

// The verdicts of [Classify]. The zero Verdict is none of them.
const (
	// Settled: another attempt would change nothing, or is wrong.
	Settled Verdict = iota + 1
	// Retry: this attempt did nothing; another one may succeed.
	Retry
	// InDoubt: the request may have been executed, or is being executed. Another attempt is
	// right with the same key at a server that honours keys, or with a method that is
	// idempotent by definition. Otherwise it is a second effect.
	InDoubt
)

// String returns the verdict's name: settled, retry or in-doubt, and none for any other
// value.
func (v Verdict) String() string {
	switch v {
	case Settled:
		return "settled"
	case Retry:
		return "retry"
	case InDoubt:
		return "in-doubt"
	default:
		return "none"
	}
}
