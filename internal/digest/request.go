package digest

import (
	"errors"
	"fmt"
	"slices"

	"example.com/idempotency/internal/jcs"
)

// A Request is the input of a fingerprint. It need not have come over HTTP.
type Request struct {
	Method string
	// Path is escaped, and Query is not decoded.
	Path, Query string
	// ContentType and ContentEncoding are the field values as they were sent.
	ContentType, ContentEncoding string
	Body                         []byte
}

// Raw returns the fingerprint of the whole request. The body counts byte for byte, except for
// the boundary of a multipart body, which clients choose at random for each attempt.
func Raw(r *Request) Sum {
	h := newHasher()
	defer h.free()
	t := parseMediaType(r.ContentType)
	return h.raw(VersionRaw, r, &t)
}

// JSON returns a fingerprint like that of Raw, but a JSON body counts in its canonical form if
// it has one.
func JSON(r *Request) Sum {
	h := newHasher()
	defer h.free()
	return h.json(r)
}

func (h *hasher) json(r *Request) Sum {
	t := parseMediaType(r.ContentType)
	if !h.hasJSON(r, &t) {
		return h.raw(VersionJSON, r, &t)
	}
	var err error
	if h.scratch, err = jcs.Canonical(h.scratch[:0], r.Body); err != nil {
		return h.raw(VersionJSON, r, &t)
	}
	h.head(VersionJSON, 'j', r)
	h.content(r, &t, "")
	h.bytes(h.scratch)
	return h.fingerprint(VersionJSON)
}

// Fields are the parts of a JSON body that [Fields.Fingerprint] counts.
type Fields struct {
	names []string
	paths []jcs.Path
}

// ParseFields reads the paths of fields, in the syntax of [jcs.ParsePath]. Their order
// does not matter.
func ParseFields(names ...string) (*Fields, error) {
	if len(names) == 0 {
		return nil, errors.New("no field is named")
	}
	f := &Fields{names: slices.Compact(slices.Sorted(slices.Values(names)))}
	for _, name := range f.names {
		path, err := jcs.ParsePath(name)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
		f.paths = append(f.paths, path)
	}
	return f, nil
}

// Fingerprint returns the fingerprint of method, path, query and the fields in the body. For a
// body that is not JSON it counts what Raw counts.
func (f *Fields) Fingerprint(r *Request) Sum {
	h := newHasher()
	defer h.free()
	return h.fields(r, f)
}

func (h *hasher) fields(r *Request, f *Fields) Sum {
	t := parseMediaType(r.ContentType)
	if !h.hasJSON(r, &t) {
		return h.raw(VersionFields, r, &t)
	}
	var err error
	if h.scratch, err = jcs.Select(h.scratch[:0], r.Body, f.paths); err != nil {
		return h.raw(VersionFields, r, &t)
	}
	h.head(VersionFields, 'f', r)
	for _, name := range f.names {
		h.text(name)
	}
	h.bytes(h.scratch)
	return h.fingerprint(VersionFields)
}

// raw hashes the body as it is.
func (h *hasher) raw(version byte, r *Request, t *mediaType) Sum {
	if boundary := t.boundary(); boundary != "" {
		h.scratch = append(append(h.scratch[:0], "--"...), boundary...)
		if isMultipart(r.Body, h.scratch) {
			h.head(version, 'm', r)
			h.content(r, t, boundaryParam)
			h.pieces(r.Body, h.scratch)
			return h.fingerprint(version)
		}
	}
	h.head(version, 'r', r)
	h.content(r, t, "")
	h.bytes(r.Body)
	return h.fingerprint(version)
}

// head writes the parts that all fingerprints of requests begin with.
func (h *hasher) head(version, form byte, r *Request) {
	h.tag(version, form)
	h.text(r.Method)
	h.text(r.Path)
	h.text(r.Query)
}

// content writes the parts that say how to read the body: its type, without the parameter
// named omit, and its codings. The same bytes mean something else if they are compressed.
func (h *hasher) content(r *Request, t *mediaType, omit string) {
	start := len(h.gathered)
	h.gathered = t.appendTo(h.gathered, omit)
	h.endPart(start)
	start = len(h.gathered)
	h.gathered = appendCodings(h.gathered, r.ContentEncoding)
	h.endPart(start)
}

// hasJSON reports whether the body is declared as JSON that is not compressed.
func (h *hasher) hasJSON(r *Request, t *mediaType) bool {
	if !t.isJSON() {
		return false
	}
	h.scratch = appendCodings(h.scratch[:0], r.ContentEncoding)
	return len(h.scratch) == 0
}
