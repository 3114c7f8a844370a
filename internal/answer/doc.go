// Package answer holds what a run has answered, as it is recorded and replayed.
//
// An [Answer] is a kind, a status, a header, a trailer and a body. [Answer.Encode] makes its stored
// form. [Decode] reads that, and checks that it is whole and belongs to the key and the fingerprint
// that it is asked for. To both, key and fingerprint are mere bytes.
//
// The package knows nothing of HTTP but that there are fields: package response records and sends.
//
//   - answer.go: the Answer, and what stands for one that is not kept
//   - stored.go: the stored form
//   - field.go: a field, how lists of fields are stored, and how large they may be
//   - names.go: a set of names of fields
//   - decoder.go: how they are read
//   - space.go, buffer.go: memory that is used again
package answer
