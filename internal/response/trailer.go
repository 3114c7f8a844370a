package response

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"example.com/idempotency/internal/answer"
)

// Trailers: how they are collected when the handler returns. field.go announces them.

// takeTrailers collects the trailer that the handler has set by the time it returns: the announced
// names, and those set with http.TrailerPrefix. The values become independent of the handler's, so
// what is recorded is what is sent. A name that was in the header and is gone has no values: the
// trailer must not repeat those of the header.
func (rec *Recorder) takeTrailers() {
	var trailers []answer.Field
	if len(rec.diff.trailer) > 0 {
		sent := rec.sentNames()
		for _, name := range rec.diff.trailer {
			if values, ok := rec.header[name]; ok || sent.Has(name) {
				trailers = append(trailers, answer.Field{Name: name, Values: slices.Clone(values)})
			}
		}
	}
	for name, values := range rec.header {
		plain, ok := strings.CutPrefix(name, http.TrailerPrefix)
		was, outer := rec.before[name]
		theirs := outer && slices.Equal(values, was)
		if ok && !theirs && !rec.diff.rules.isOwn(plain) {
			trailers = append(trailers, answer.Field{Name: name, Values: slices.Clone(values)})
		}
	}
	if trailers == nil {
		return
	}
	if rec.rare == nil {
		rec.rare = new(rareParts)
	}
	rec.rare.trailers = trailers
	if rec.rare.written != nil {
		for _, f := range trailers {
			if f.Values == nil {
				continue // the header has some
			}
			rec.rare.written[f.Name] = slices.Clone(f.Values)
		}
	}
}

// sentNames returns the names under which the header of the answer has values.
func (rec *Recorder) sentNames() answer.Names {
	sent := make(answer.Names)
	for name, values := range rec.w.Header() {
		if len(values) > 0 {
			sent.Add(name)
		}
	}
	for _, fields := range [...][]answer.Field{rec.diff.live, rec.diff.recorded} {
		for _, f := range fields {
			delete(sent, f.Name)
			if len(f.Values) > 0 {
				sent.Add(f.Name)
			}
		}
	}
	return sent
}

// trailer returns the trailer under its own names. All of it is sent, and not all is recorded.
func (rec *Recorder) trailer(recorded bool) []answer.Field {
	if rec.rare == nil {
		return nil
	}
	var fields []answer.Field
	for _, f := range rec.rare.trailers {
		if plain, ok := strings.CutPrefix(f.Name, http.TrailerPrefix); ok {
			f.Name = textproto.CanonicalMIMEHeaderKey(plain)
		}
		if !recorded || rec.diff.rules.record(f.Name) {
			fields = append(fields, f)
		}
	}
	return fields
}
