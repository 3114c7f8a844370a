package history

import "unique"

// A Label is a label, of which there is one copy for all records. The zero Label is the empty
// label.
type Label struct{ handle unique.Handle[string] }

// LabelOf returns the label with that text.
func LabelOf(text string) Label {
	if text == "" {
		return Label{}
	}
	return Label{unique.Make(text)}
}

// String returns the text of the label.
func (l Label) String() string {
	if l == (Label{}) {
		return ""
	}
	return l.handle.Value()
}
