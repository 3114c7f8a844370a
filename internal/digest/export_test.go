package digest

import "hash"

// A recorder stands in for SHA-256 and keeps what it is given.
type recorder struct {
	hash.Hash
	written []byte
}

func (r *recorder) Reset() { r.written = r.written[:0] }

func (r *recorder) Write(p []byte) (int, error) {
	r.written = append(r.written, p...)
	return len(p), nil
}

func (r *recorder) Sum(b []byte) []byte { return b }

func preimage(r *Request, hash func(*Reading)) []byte {
	kept := &recorder{}
	d := Read(*r)
	defer d.Free()
	sha := d.h.sha
	defer func() { d.h.sha = sha }()
	d.h.sha = kept
	hash(&d)
	return kept.written
}

// RawPreimage returns what Raw hashes.
func RawPreimage(r *Request) []byte {
	return preimage(r, func(d *Reading) { d.Raw() })
}

// JSONPreimage returns what JSON hashes.
func JSONPreimage(r *Request) []byte {
	return preimage(r, func(d *Reading) { d.JSON() })
}

// FieldsPreimage returns what Fields hashes.
func FieldsPreimage(f *Fields, r *Request) []byte {
	return preimage(r, func(d *Reading) { d.Fields(f) })
}

// Raw returns the fingerprint of the whole request.
func Raw(r *Request) Sum {
	d := Read(*r)
	defer d.Free()
	return d.Raw()
}

// JSON returns the fingerprint in which a JSON body counts in its canonical form.
func JSON(r *Request) Sum {
	d := Read(*r)
	defer d.Free()
	return d.JSON()
}

// Fingerprint returns the fingerprint in which only the fields of a JSON body count.
func (f *Fields) Fingerprint(r *Request) Sum {
	d := Read(*r)
	defer d.Free()
	return d.Fields(f)
}

// Checksum returns the checksums of a request.
func Checksum(r *Request) Checksums {
	d := Read(*r)
	defer d.Free()
	return d.Checksums()
}

// NormalizeType returns the canonical spelling of a Content-Type, and whether it is
// well-formed.
func NormalizeType(value string) (string, bool) {
	t := parseMediaType(value)
	return string(t.appendTo(nil, "")), t.verbatim == "" && t.name != ""
}

// ParseType returns what this package reads in a Content-Type, in the form of
// mime.ParseMediaType, and whether it reads the value at all.
func ParseType(value string) (name string, params map[string]string, ok bool) {
	t := parseMediaType(value)
	params = make(map[string]string)
	for _, p := range t.params[:t.n] {
		params[p.name] = p.value
	}
	return t.name, params, t.verbatim == "" && t.name != ""
}

// Boundary returns the boundary in a Content-Type, or "" if there is no usable one.
func Boundary(value string) string {
	t := parseMediaType(value)
	return t.boundary()
}
