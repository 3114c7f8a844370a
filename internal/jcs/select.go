package jcs

import (
	"bytes"
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

// ErrCase says that an object has a name of a path only in another case. encoding/json reads such a
// member into the field that the path means, and other parsers do not.
var ErrCase = errors.New("jcs: a name of a path occurs in another case")

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
	selected := dst
	for _, path := range paths {
		var err error
		if selected, err = d.appendPath(selected, 0, path); err != nil {
			return dst, err
		}
		selected = append(selected, '\n')
	}
	return selected, nil
}

// appendPath appends what path finds in the value at node i.
func (d *document) appendPath(dst []byte, i int32, path Path) ([]byte, error) {
	if len(path) == 0 {
		return d.append(append(dst, '='), i), nil
	}
	var err error
	switch n := d.nodes[i]; n.kind {
	case kindArray:
		dst = append(dst, '[')
		for e := i + 1; e < n.next; e = d.nodes[e].next {
			if dst, err = d.appendPath(dst, e, path); err != nil {
				return dst, err
			}
			dst = append(dst, ',')
		}
		return append(dst, ']'), nil
	case kindObject:
		for _, name := range d.members[n.start:n.end] {
			switch found := d.bytes(d.nodes[name]); {
			case string(found) == path[0]:
				return d.appendPath(dst, name+1, path[1:])
			case bytes.EqualFold(found, []byte(path[0])):
				return dst, ErrCase
			}
		}
	}
	return append(dst, '-'), nil
}
