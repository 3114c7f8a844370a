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

// Select returns what a path finds, in memory that the next call uses again. Its time grows with the size
// of the text, because an array is searched element by element.
//
// A value is written as '=' and its canonical form, and an absent one as '-', so that null
// differs from nothing. A value that can have no members is written as '!' and its canonical form. A path that meets an array continues in each of its elements. The
// results are then in brackets, each followed by a comma: the path a.b finds [=1,-,] in
// {"a":[{"b":1},{}]}. Different results are never written alike, and they have no line breaks.
func (d *Document) Select(path Path) ([]byte, error) {
	// A result has the values in their canonical form, an equals sign for each, and a comma more for
	// each array.
	d.found = grow(d.found[:0], len(d.src)+d.longer+len(d.nodes))
	var err error
	if d.found, err = d.appendPath(d.found, 0, path); err != nil {
		return nil, err
	}
	return d.found, nil
}

// appendPath appends what path finds in the value at node i.
func (d *Document) appendPath(dst []byte, i int32, path Path) ([]byte, error) {
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
	default:
		return d.append(append(dst, '!'), i), nil
	}
	return append(dst, '-'), nil
}
