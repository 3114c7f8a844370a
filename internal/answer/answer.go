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

// maxLocation is how long the Location of an answer may be that is not kept itself. No URL
// that clients rely on is longer.
const maxLocation = 2 << 10

// NotKept returns the answer that stands for one that is not kept. It tells that the handler
// ran, with which status, and in the values of Location where its result is, if they fit the
// limit.
func NotKept(status int, location []string, limit int64) Answer {
	a := Answer{Kind: KindNotKept, Status: status}
	header := []Field{{Name: "Location", Values: location}}
	if location != nil && fieldsSize(header) <= min(limit, maxLocation) {
		a.Header = header
	}
	return a
}

// maxFailure is how much is kept of the text of an error that is not kept whole.
const maxFailure = 2 << 10

// Brief returns the answer that stands for a where there is no room for a itself. What
// matters most is that the run has happened, and that takes a few bytes.
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
	return NotKept(a.Status, location, limit)
}

// Size is what the answer counts for in a limit: its body, and its fields as they are stored.
func (a *Answer) Size() int64 {
	return fieldsSize(a.Header) + fieldsSize(a.Added) + fieldsSize(a.Trailer) + int64(len(a.Body))
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
