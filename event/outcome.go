package event

import "strconv"

// An Outcome says how a run ended, as far as its effects are concerned. It decides
// what the next request with the same key gets.
type Outcome uint8

// String returns the outcome's name: final, not-executed, unknown or resume; none for the zero
// Outcome; and the number of any other value.
func (o Outcome) String() string {
	switch o {
	case 0:
		return "none"
	case Final:
		return "final"
	case NotExecuted:
		return "not-executed"
	case Unknown:
		return "unknown"
	case Resume:
		return "resume"
	default:
		return "outcome(" + strconv.Itoa(int(o)) + ")"
	}
}

// The outcomes of a run. The zero Outcome is none of them.
const (
	// Final: the answer is definite, whether it reports success or refusal. It is
	// recorded and replayed until the TTL ends.
	Final Outcome = iota + 1
	// NotExecuted: the run is known to have had no effect. The claim is released and
	// the next request runs as the next attempt. If no earlier attempt can have had an
	// effect either, the record ends after two leases, or 15 minutes under idempotency.Hold, and the
	// key is as good as new. See also idempotency.WithRebinding.
	NotExecuted
	// Unknown: an effect may or may not have happened. The idempotency.Recovery of the route
	// decides what the next request gets. The client is not shown a status of 4xx, 307 or 308,
	// which would tell it that nothing was done: it gets 503 no-answer, or 409 outcome-unknown
	// if the key is held. A 409 with Retry-After is shown unless the key is held. Any other
	// answer is shown. Under idempotency.WithTransaction it becomes NotExecuted, with few exceptions.
	Unknown
	// Resume: a held key is let go, and the next request goes on as the next attempt: it finds the
	// steps that are recorded, and repeats the one in doubt. Only somebody who resolves a key says so.
	// A run that calls its own outcome Resume has said nothing of it, and a route's function that
	// returns it has said [Unknown].
	Resume
)
