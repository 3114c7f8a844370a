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
	// ContentType and ContentEncoding are the field values as they were sent, with a line feed between
	// those of several lines.
	ContentType, ContentEncoding string
	Body                         []byte
}

// A Reading is a request that was read for its fingerprint and its checksums: both count the type
// and the codings of a body in their canonical form.
type Reading struct {
	Request
	h *hasher
	// kind is the content type. That of a form is without its boundary.
	kind, codings []byte
	delimiter     []byte // between the pieces of a form, or nil
	isJSON        bool   // in UTF-8, that is not compressed
	// isCodedForm says that the body shows the boundary of a form, and is compressed. isForeignJSON says
	// that it is JSON in another charset. Both count byte for byte.
	isCodedForm, isForeignJSON bool
	// isAsSent says that the codings count as they were sent. The body counts byte for byte then.
	isAsSent bool
}

// Read reads a request. Free must be called at the end.
func Read(r Request) Reading {
	h := newHasher()
	d := Reading{Request: r, h: h}
	isCoded := r.ContentEncoding != ""
	content := h.content[:0]
	if r.ContentType == "application/json" { // as most requests have it
		content = append(content, r.ContentType...)
		d.isJSON = !isCoded
	} else {
		t := parseMediaType(r.ContentType)
		isJSON := t.isJSON() && !isCoded
		d.isForeignJSON = isJSON && !t.isUTF8()
		d.isJSON = isJSON && !d.isForeignJSON
		omit := ""
		if boundary := t.boundary(); boundary != "" {
			h.delimiter = append(append(h.delimiter[:0], "--"...), boundary...)
			isForm := isMultipart(r.Body, h.delimiter)
			d.isCodedForm = isForm && isCoded
			if isForm && !d.isCodedForm {
				omit, d.delimiter = boundaryParam, h.delimiter
			}
		}
		content = t.appendTo(content, omit)
	}
	n := len(content)
	var ok bool
	h.content, ok = appendCodings(append(content, '\n'), r.ContentEncoding)
	d.isAsSent = !ok
	d.kind, d.codings = h.content[:n], h.content[n+1:]
	return d
}

// Free gives the memory of the reading back.
func (d *Reading) Free() { d.h.free() }

// Raw returns the fingerprint of the whole request. The body counts byte for byte, except for
// the boundary of a multipart body without a content coding, which clients choose at random for each
// attempt. Compressed bytes that look like one may hold other parts than they show.
func (d *Reading) Raw() Sum { return d.raw(VersionRaw) }

// JSON returns a fingerprint like that of Raw, but a JSON body in UTF-8 counts in its canonical form if
// it has one. That of JSON in another charset is the one of Raw, which processes of all versions know.
func (d *Reading) JSON() Sum {
	switch {
	case d.isForeignJSON:
		return d.Raw()
	case !d.isJSON:
		return d.raw(VersionJSON)
	}
	h := d.h
	var err error
	if h.canonical, err = jcs.Canonical(h.canonical[:0], d.Body); err != nil {
		return d.raw(VersionJSON)
	}
	d.head(VersionJSON, 'j')
	d.content()
	h.bytes(h.canonical)
	return h.fingerprint(VersionJSON)
}

// Fields are the parts of a JSON body that [Reading.Fields] counts.
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

// Fields returns the fingerprint of method, path, query and the fields in the body. For a body
// that is not JSON it counts what Raw counts.
func (d *Reading) Fields(f *Fields) Sum {
	switch {
	case d.isForeignJSON:
		return d.Raw()
	case !d.isJSON:
		return d.raw(VersionFields)
	}
	body, err := jcs.Read(d.Body)
	if err != nil {
		return d.raw(VersionFields)
	}
	defer body.Free()
	d.head(VersionFields, 'f')
	for _, name := range f.names {
		d.h.text(name)
	}
	for _, path := range f.paths {
		value, err := body.Select(path)
		if err != nil {
			return d.raw(VersionFields)
		}
		d.h.bytes(value)
	}
	return d.h.fingerprint(VersionFields)
}

// raw hashes the body as it is.
func (d *Reading) raw(version byte) Sum {
	switch {
	case d.isAsSent:
		version = VersionAsSent
	case d.isCodedForm:
		version = VersionCoded
	}
	if d.delimiter != nil {
		d.head(version, 'm')
		d.content()
		d.h.pieces(d.Body, d.delimiter)
		return d.h.fingerprint(version)
	}
	d.head(version, 'r')
	d.content()
	d.h.bytes(d.Body)
	return d.h.fingerprint(version)
}

// head writes the parts that all fingerprints of requests begin with.
func (d *Reading) head(version, form byte) {
	d.h.begin(fingerprintTag, version, form)
	d.h.text(d.Method)
	d.h.text(d.Path)
	d.h.text(d.Query)
}

// content writes the parts that say how to read the body. The same bytes mean something else if
// they are compressed.
func (d *Reading) content() {
	d.h.bytes(d.kind)
	d.h.bytes(d.codings)
}
