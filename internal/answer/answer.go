package answer

import "bytes"

// A Kind says what an [Answer] stands for.
type Kind byte

// The kinds of answers. The numbers are part of the stored form.
const (
	KindKept    Kind = 1 // the answer of a handler: status, header, trailer and body
	KindNotKept Kind = 2 // the handler ran, but its answer was too large to keep: status and recorded Location only
	KindValue   Kind = 3 // the result of a function: the body is its encoded value
	KindError   Kind = 4 // the result of a function: the body is the text of a permanent error
)

// An Answer is what a run answered, as it is recorded and replayed. A replay sets the fields
// of Header, and adds the values of Added to those that outer handlers have set.
type Answer struct {
	Kind                   Kind
	Status                 int
	Header, Added, Trailer []Field
	Body                   []byte
}

// Fields returns all fields that a client gets, its trailers among them.
func (a *Answer) Fields() map[string][]string {
	all := make(map[string][]string)
	for _, fields := range [][]Field{a.Header, a.Added, a.Trailer} {
		for _, f := range fields {
			all[f.Name] = append(all[f.Name], f.Values...)
		}
	}
	return all
}

// maxLocation is how long the Location of an answer may be that is not kept itself. No URL
// that clients rely on is longer.
const maxLocation = 2 << 10

// NotKept returns the answer that stands for one that is not kept. It tells that the handler
// ran, with which status, and in the values of Location where its result is, unless they are too long.
func NotKept(status int, location []string) Answer {
	a := Answer{Kind: KindNotKept, Status: status}
	header := []Field{{Name: "Location", Values: location}}
	if location != nil && fieldsSize(header) <= maxLocation {
		a.Header = header
	}
	return a
}

// maxFailure is how much is kept of the text of an error that is not kept whole.
const maxFailure = 2 << 10

// Brief returns the answer that stands for a where there is no room for a itself. What
// matters most is that the run has happened, and that takes a few bytes. The limit is that of a body.
func (a *Answer) Brief(limit int64) Answer {
	if a.Kind == KindError {
		text := a.Body[:min(int64(len(a.Body)), limit, maxFailure)]
		return Answer{Kind: KindError, Status: a.Status, Body: bytes.ToValidUTF8(text, nil)}
	}
	var location []string
	for _, f := range a.Header {
		if f.Name == "Location" {
			location = f.Values
		}
	}
	return NotKept(a.Status, location)
}

// Fits reports whether the answer may be kept: its body has at most limit bytes, and its fields, which
// do not count in that, at most [MaxFields].
func (a *Answer) Fits(limit int64) bool {
	return int64(len(a.Body)) <= limit && fieldsSize(a.Header)+fieldsSize(a.Added)+fieldsSize(a.Trailer) <= MaxFields
}

// Location returns the value of the answer's Location field, or the empty string.
func (a *Answer) Location() string {
	for _, f := range a.Header {
		if f.Name == "Location" && len(f.Values) > 0 {
			return f.Values[0]
		}
	}
	return ""
}
