package client

import (
	"net/http"

	"example.com/idempotency/client/profile"
)

// This file decides which answers count once an earlier attempt may have been executed.
// From then on, only the one who executed it may speak: a proxy, an authentication or a
// conflict with the attempt itself must not pass for the end of the request.

// A voice is how much an answer says about the earlier attempts of its request.
type voice int

const (
	definite voice = iota // it is the answer to the request
	unsure                // another attempt may find the answer
	foreign               // it says nothing, and another attempt would get the same
)

// voiceOf weighs a settled answer of a request that may have been executed before.
func (a *answer) voiceOf() voice {
	switch a.meaning {
	case profile.Own, profile.Reused, profile.Held, profile.Lost:
		return definite
	case profile.Refused:
		return foreign
	}
	switch {
	case a.replayed:
		return definite
	case a.status < http.StatusMultipleChoices:
		return definite
	case a.status == http.StatusTemporaryRedirect, a.status == http.StatusPermanentRedirect:
		// A client that follows it asks another place, and one that does not takes it for
		// the end. Neither learns what became of the request here.
		return foreign
	case ambiguous(a.status):
		return a.orForeign(unsure)
	case a.echoes && (a.declared || a.status == http.StatusSeeOther):
		return definite
	case a.echoes: // perhaps in a refusal of the key, in words that nobody has told
		return a.orForeign(unsure)
	case a.status < http.StatusBadRequest, a.status == http.StatusUnauthorized, a.status == http.StatusForbidden,
		a.status == http.StatusProxyAuthRequired, a.status == http.StatusMisdirectedRequest:
		return foreign
	default:
		return a.orForeign(unsure)
	}
}

// orForeign spares the next attempt if the server says that it is of no use.
func (a *answer) orForeign(v voice) voice {
	if a.useless() {
		return foreign
	}
	return v
}

// ambiguous reports whether servers use a status, without a word of explanation, both for a
// request that is still running and for a refusal of their own.
func ambiguous(status int) bool {
	switch status {
	case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusLocked, http.StatusTooEarly:
		return true
	}
	return false
}

// shows reports whether an answer proves that its server honours keys.
func (a *answer) shows() bool {
	if a.replayed || a.echoes {
		return true
	}
	switch a.meaning {
	case profile.InFlight, profile.NotRun, profile.Refused, profile.Reused, profile.Held, profile.Lost, profile.Unanswered:
		return true
	}
	return false
}

// errorsOf returns the errors that the meaning of an answer stands for; none if it is an
// answer like any other.
func errorsOf(m profile.Meaning) []error {
	switch m {
	case profile.Reused:
		return []error{ErrKeyReused}
	case profile.Held:
		return []error{ErrHeld, ErrOutcomeUnknown}
	case profile.Lost:
		return []error{ErrAnswerLost}
	default:
		return nil
	}
}
