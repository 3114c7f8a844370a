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

// read returns the content of a file, or the line that is damaged.
func read(data []byte) (content, error) {
	corrupt := func(line int, offset int64, why any) (content, error) {
		return content{}, fmt.Errorf("%w: line %d, at byte %d: %v", ErrCorrupt, line, offset, why)
	}
	var h header
	first := cutLine(data)
	if err := decode(first, &h); err != nil {
		return corrupt(1, 0, "this is not the beginning of a journal")
	}
	switch {
	case h.Version != version:
		return corrupt(1, 0, fmt.Sprintf("it has version %d", h.Version))
	case h.Replaced:
		return content{}, fmt.Errorf("%w: another file has taken the place of this one", ErrMoved)
	}
	c := content{size: h.Size, used: int64(len(first))}
	for n := 2; ; n++ {
		rest := data[c.used:]
		text := cutLine(rest)
		var l line
		err := decode(text, &l)
		if err == nil {
			c.lines = append(c.lines, l)
			c.used += int64(len(text))
			continue
		}
		if int64(len(data)) != h.Size {
			return corrupt(n, c.used, fmt.Sprintf("the file has %d bytes, and should have %d", len(data), h.Size))
		}
		rest = bytes.TrimRight(rest, "\x00")
		switch {
		case len(rest) == 0:
			return c, nil
		case whole(rest): // all but the newline, which is in the next sector
			if err := decode(append(slices.Clone(rest), '\n'), &l); err != nil {
				return corrupt(n, c.used, err)
			}
			c.lines = append(c.lines, l)
			c.used += int64(len(rest)) + 1
			c.mend, c.mendAt = []byte{'\n'}, c.used-1
			return c, nil
		case !errors.Is(err, errAltered), !torn(rest, c.used):
			return corrupt(n, c.used, err)
		default:
			c.mend, c.mendAt = make([]byte, len(rest)), c.used
			return c, nil
		}
	}
}

// cutLine returns the first line, with its newline if it has one.
func cutLine(data []byte) []byte {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return data[:i+1]
	}
	return data
}
