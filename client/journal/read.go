package journal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// This file reads the content of a file, and tells a line that was being written from damage.

// A content is what a file has in it.
type content struct {
	lines []line
	size  int64 // of the file
	used  int64 // bytes of it that are lines
	// mend is to be written at mendAt: the newline that a last line lacks, or zeros in the
	// place of a line that was being written.
	mend   []byte
	mendAt int64
}

// read returns the content of a file, or which line is damaged or of another version.
func read(data []byte) (content, error) {
	corrupt := func(line int, offset int64, why any) (content, error) {
		return content{}, fmt.Errorf("%w: line %d, at byte %d: %v", ErrCorrupt, line, offset, why)
	}
	first := cutLine(data)
	h, err := decodeHeader(first)
	switch {
	case errors.Is(err, ErrVersion):
		return content{}, err
	case err != nil:
		return corrupt(1, 0, "this is not the beginning of a journal")
	case h.Replaced:
		return content{}, fmt.Errorf("%w: another file has taken the place of this one", ErrMoved)
	}
	c := content{size: h.Size, used: int64(len(first))}
	var texts [][]byte
	for {
		text := cutLine(data[c.used:])
		if object, ok := bytes.CutSuffix(text, []byte("\n")); !ok || !whole(object) {
			break
		}
		texts = append(texts, text)
		c.used += int64(len(text))
	}
	// The rest is zeros, or what was being written.
	n := len(texts) + 2
	rest := bytes.TrimRight(data[c.used:], "\x00")
	switch {
	case int64(len(data)) != h.Size:
		return corrupt(n, c.used, fmt.Sprintf("the file has %d bytes, and should have %d", len(data), h.Size))
	case len(rest) == 0:
	case whole(rest): // all but the newline, which is in the next sector
		texts = append(texts, append(slices.Clone(rest), '\n'))
		c.mend, c.mendAt = []byte{'\n'}, c.used+int64(len(rest))
		c.used = c.mendAt + 1
	case torn(rest, c.used):
		c.mend, c.mendAt = make([]byte, len(rest)), c.used
	default:
		return corrupt(n, c.used, errAltered)
	}
	for i, text := range texts {
		var l line
		object, err := objectOf(text)
		if err == nil {
			err = decode(object, &l)
		}
		if err != nil {
			return content{}, fmt.Errorf("%w: line %d", err, i+2)
		}
		c.lines = append(c.lines, l)
	}
	return c, nil
}

// cutLine returns the first line, with its newline if it has one.
func cutLine(data []byte) []byte {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return data[:i+1]
	}
	return data
}
