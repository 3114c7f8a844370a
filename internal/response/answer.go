package response

// A Kind says what an [Answer] stands for.
type Kind byte

// The kinds of answers. The numbers are part of the stored form.
const (
	KindKept    Kind = 1 // the answer of a handler: status, header, trailer and body
	KindNotKept Kind = 2 // the handler ran, but its answer was too large to keep: status and Location only
	KindValue   Kind = 3 // the result of a function: the body is its encoded value
	KindError   Kind = 4 // the result of a function: the body is the text of a permanent error
)

// A Field is a header or trailer field. A field without values suppresses the one that an
// outer handler, or the server, would otherwise send under its name.
type Field struct {
	Name   string
	Values []string
}

// An Answer is what a run answered, as it is recorded and replayed.
type Answer struct {
	Kind            Kind
	Status          int
	Header, Trailer []Field
	Body            []byte

	length []string // the values of Content-Length; set by Decode, for Send
}

// NotKept returns the answer that stands for one that is not kept. It tells that the handler
// ran, with which status, and in the values of Location where its result is.
func NotKept(status int, location []string) Answer {
	a := Answer{Kind: KindNotKept, Status: status}
	if location != nil {
		a.Header = []Field{{Name: "Location", Values: location}}
	}
	return a
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
