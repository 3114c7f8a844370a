// Package response keeps the answer of a handler and gives it again.
//
// A [Recorder] is the http.ResponseWriter that a handler writes to. It holds the answer
// back until the caller has stored it, or, once the handler flushes, sends it on and keeps
// a copy. What the handler wrote becomes an [Answer]: status, header, trailer and body,
// without the fields of outer handlers and without those that must not be repeated. An
// Answer has a stored form, which [Answer.Encode] makes and [Decode] checks and reads, and
// [Answer.Send] replays it.
//
// The package knows nothing of keys' meaning, claims or stores: it takes the key and the
// fingerprint that a stored answer belongs to as they are.
package response
