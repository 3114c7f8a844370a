package jcs

import (
	"errors"
	"strings"
)

// ErrPath says that a path is malformed.
var ErrPath = errors.New("jcs: malformed path")

// A Path names values in a document by the member names that lead to them.
type Path []string

// ParsePath reads a path: member names separated by dots. Inside a name, a backslash precedes
// each dot and each backslash. A name must not be empty.
func ParsePath(s string) (Path, error) {
	var (
		path Path
		name strings.Builder
	)
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == '.':
			if name.Len() == 0 {
				return nil, ErrPath
			}
			path = append(path, name.String())
			name.Reset()
		case s[i] == '\\':
			if i++; i == len(s) || s[i] != '.' && s[i] != '\\' {
				return nil, ErrPath
			}
			fallthrough
		default:
			name.WriteByte(s[i])
		}
	}
	return path, nil
}

// Select appends to dst the values that the paths find in the JSON text src, one line for each
// path. If it returns an error, dst is as it was.
//
// A value is written as '=' and its canonical form, and an absent one as '-', so that null
// differs from nothing. A path that meets an array continues in each of its elements. The line
// then has the results in brackets, each followed by a comma: the path a.b finds [=1,-,] in
// {"a":[{"b":1},{}]}. Canonical forms have no line breaks, so different results are never
// written alike.
func Select(dst, src []byte, paths []Path) ([]byte, error) {
	d := documents.Get().(*document)
	defer d.free()
	if err := d.parse(src); err != nil {
		return dst, err
	}
	for _, path := range paths {
		dst = d.appendPath(dst, 0, path)
		dst = append(dst, '\n')
	}
	return dst, nil
}

// appendPath appends what path finds in the value at node i.
func (d *document) appendPath(dst []byte, i int32, path Path) []byte {
	if len(path) == 0 {
		return d.append(append(dst, '='), i)
	}
	switch n := d.nodes[i]; n.kind {
	case kindArray:
		dst = append(dst, '[')
		for e := i + 1; e < n.next; e = d.nodes[e].next {
			dst = d.appendPath(dst, e, path)
			dst = append(dst, ',')
		}
		return append(dst, ']')
	case kindObject:
		for _, name := range d.members[n.start:n.end] {
			if string(d.bytes(d.nodes[name])) == path[0] {
				return d.appendPath(dst, name+1, path[1:])
			}
		}
	}
	return append(dst, '-')
}
