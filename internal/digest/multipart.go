package digest

import "bytes"

// isMultipart reports whether each occurrence of the delimiter, which is two hyphens
// and the boundary, in body is what RFC 2046, section 5.1.1, makes of it: it is at the
// start of the body or of a line and ends that line, and the last one, and no other,
// has two more hyphens.
//
// This is stricter than the RFC, and stricter than any parser. What it accepts falls
// into the same pieces in each parser, and would do so with any other boundary.
func isMultipart(body, delimiter []byte) bool {
	closed := false
	for first := true; ; first = false {
		before, after, found := bytes.Cut(body, delimiter)
		if !found {
			return closed
		}
		atLineStart := bytes.HasSuffix(before, []byte("\r\n")) || first && len(before) == 0
		if !atLineStart || closed {
			return false
		}
		var end []byte
		end, closed = bytes.CutPrefix(after, []byte("--"))
		atLineEnd := bytes.HasPrefix(end, []byte("\r\n")) || closed && len(end) == 0
		if !atLineEnd {
			return false
		}
		body = after
	}
}

// pieces writes what is between the delimiters of body as one part each.
func (h *hasher) pieces(body, delimiter []byte) {
	for found := true; found; {
		var piece []byte
		piece, body, found = bytes.Cut(body, delimiter)
		h.bytes(piece)
	}
}
