// Package response records the answer of a handler and replays it.
//
// A [Recorder] is the http.ResponseWriter that a handler writes to. It holds the answer
// back until the caller has stored it, or, once the handler flushes, sends it on and keeps
// a copy. Then it returns an [answer.Answer]: status, header, trailer and body, without the fields
// of outer handlers and without those that must not be repeated. [Send] replays a stored one. A [Tap]
// only measures an answer as it passes.
//
// The package knows nothing of guards, claims and stores. The stored form is in package answer.
//
//   - recorder.go: the Recorder, and what it is told
//   - writer.go: the Recorder, as the handler sees it
//   - result.go: the Recorder, as its caller sees it once the handler has returned
//   - stream.go, flush.go: what goes to the client, and when; whether a flush can reach it
//   - header.go, trailer.go, contenttype.go: which fields belong to an answer
//   - field.go: how fields are set, and trailers announced
//   - send.go: the replay, and the rules of HTTP for every answer
//   - tap.go, tap.go: the Tap, and the writer that a handler gets of it
package response
