package idempotency

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file tells clients for how long a key is good. The time is in seconds and not a date,
// because a client that counts from the moment at which it sent the request needs no clock that
// agrees with the server's, and never counts too far.

// ExpiryHeader is a name for the field of [WithExpiryHeader]. Package client looks for this one.
const ExpiryHeader = "Idempotency-TTL"

// ownFields are those that a guard sets for something else.
var ownFields = []string{problem.Header, response.ReplayedHeader, "Cache-Control", "Content-Length", "Content-Type", "Link", "Retry-After"}

// expiryField returns the field that says for how long a key is good. It must not be asked for
// if the guard does not send one.
func (s *settings) expiryField(ttl time.Duration) answer.Field {
	seconds := strconv.FormatInt(int64(ttl/time.Second), 10)
	return answer.Field{Name: s.expiryHeader, Values: []string{seconds}}
}

// tellsExpiry reports whether an answer says for how long the key is good. Zero is a time that
// is not known.
func (s *settings) tellsExpiry(ttl time.Duration) bool {
	return s.expiryHeader != "" && ttl > 0 && ttl != store.Forever
}

// addExpiry makes the field a part of an answer that is about to be replayed. It replaces a
// field of that name in the record, which was true of another moment.
func (s *settings) addExpiry(a *answer.Answer, ttl time.Duration) {
	if s.tellsExpiry(ttl) {
		a.Header = append(slices.Clip(a.Header), s.expiryField(ttl))
	}
}

func (s *settings) setExpiry(h http.Header, ttl time.Duration) {
	if s.tellsExpiry(ttl) {
		f := s.expiryField(ttl)
		h[f.Name] = f.Values
	}
}

// goodFor returns how long the key of a run in flight is surely good. If the run gives no
// answer, the record is kept for what is left of it, and if it gives one, for the TTL from then
// on.
func (s *settings) goodFor(rec store.Record) time.Duration { return min(rec.TTL, s.rules.TTL) }
