// Package response records the answer of a handler and replays it.
//
// A [Recorder] is the http.ResponseWriter that a handler writes to. It holds the answer
// back until the caller has stored it, or, once the handler flushes, sends it on and keeps
// a copy. Then it returns an [Answer]: status, header, trailer and body, without the fields
// of outer handlers and without those that must not be repeated. [Answer.Encode] makes the
// stored form of an Answer, [Decode] checks and reads it, and [Answer.Send] replays it.
//
// The package knows nothing of guards, claims and stores. To Encode and Decode, the key and the
// fingerprint that an answer belongs to are mere bytes.
//
//   - recorder.go: the Recorder, as its caller sees it
//   - writer.go: the Recorder, as the handler sees it
//   - stream.go: what goes to the client, and when
//   - header.go, trailer.go, contenttype.go: which fields belong to an answer
//   - answer.go, stored.go: the Answer and its stored form
//   - send.go: the replay, and the rules of HTTP for every answer
package response
