package digest

import "bytes"

// isMultipart reports whether every occurrence of the delimiter in body really delimits parts,
// as RFC 2046, section 5.1.1, defines it. The delimiter is two hyphens and the boundary. Each
// occurrence must be at the start of the body or of a line, and must end that line. The last
// one, and no other, must have two more hyphens.
//
// This is stricter than the RFC and any parser. All parsers split a body that it accepts into
// the same pieces, and would do so with any other boundary.
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

// pieces writes each piece of body between two delimiters as a part.
func (h *hasher) pieces(body, delimiter []byte) {
	for found := true; found; {
		var piece []byte
		piece, body, found = bytes.Cut(body, delimiter)
		h.bytes(piece)
	}
}
