package jcs

import "bytes"

// parse fills the document with the text src.
func (d *Document) parse(src []byte) error {
	if len(src) > MaxSize {
		return ErrSize
	}
	d.src, d.longer = src, 0
	d.reserve()
	p := parser{Document: d, src: src}
	p.space()
	if err := p.value(0); err != nil {
		return err
	}
	p.space()
	if p.pos != len(src) {
		return ErrSyntax
	}
	return nil
}

// reserve makes room for all that the text can contain, in one step: a list that grows while the
// parser reads leaves its smaller copies to the garbage collector. The punctuation tells how much that is.
// If it is in strings, it tells too much, and the length of the text bounds that.
func (d *Document) reserve() {
	size := len(d.src)
	commas, colons := bytes.Count(d.src, []byte(",")), bytes.Count(d.src, []byte(":"))
	openings := bytes.Count(d.src, []byte("[")) + bytes.Count(d.src, []byte("{"))
	// A value follows one of these, or begins the text. It has two bytes with its comma or its
	// closing bracket, and a text that is cut off lacks at most MaxDepth brackets.
	d.nodes = grow(d.nodes[:0], min(1+commas+colons+openings, size/2+MaxDepth))
	// A name has two quotes, a colon, and a value or the opening brace before it. The last may lack its colon.
	names := min(colons, size/4) + 1
	d.members, d.open = grow(d.members[:0], names), grow(d.open[:0], names)
	// Nothing in d.text is longer than in the source, but the number that is being read.
	d.text = grow(d.text[:0], size+maxLonger)
}

// A parser reads a text from front to back and appends the values it finds to a document.
type parser struct {
	*Document
	src []byte
	pos int
}

// peek returns the next byte. At the end it returns 0, with which nothing in JSON begins.
func (p *parser) peek() byte {
	if p.pos == len(p.src) {
		return 0
	}
	return p.src[p.pos]
}

// accept consumes the next byte if it is c.
func (p *parser) accept(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.pos++
	return true
}

func (p *parser) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return
		}
	}
}

// add appends a node and returns its index.
func (p *parser) add(n node) int32 {
	i := int32(len(p.nodes))
	n.next = i + 1
	p.nodes = append(p.nodes, n)
	return i
}

func (p *parser) value(depth int) error {
	switch c := p.peek(); c {
	case '{':
		return p.object(depth)
	case '[':
		return p.array(depth)
	case '"':
		return p.string()
	case 'n':
		return p.literal("null", kindNull)
	case 't':
		return p.literal("true", kindTrue)
	case 'f':
		return p.literal("false", kindFalse)
	default:
		return p.number()
	}
}

func (p *parser) literal(word string, k kind) error {
	if len(p.src)-p.pos < len(word) || string(p.src[p.pos:p.pos+len(word)]) != word {
		return ErrSyntax
	}
	p.pos += len(word)
	p.add(node{kind: k})
	return nil
}

func (p *parser) array(depth int) error {
	if depth == MaxDepth {
		return ErrDepth
	}
	i := p.add(node{kind: kindArray})
	p.pos++
	p.space()
	for first := true; !p.accept(']'); first = false {
		if !first {
			if !p.accept(',') {
				return ErrSyntax
			}
			p.space()
		}
		if err := p.value(depth + 1); err != nil {
			return err
		}
		p.space()
	}
	p.nodes[i].next = int32(len(p.nodes))
	return nil
}

func (p *parser) object(depth int) error {
	if depth == MaxDepth {
		return ErrDepth
	}
	i := p.add(node{kind: kindObject})
	mark := len(p.open)
	p.pos++
	p.space()
	for first := true; !p.accept('}'); first = false {
		if !first {
			if !p.accept(',') {
				return ErrSyntax
			}
			p.space()
		}
		if p.peek() != '"' {
			return ErrSyntax
		}
		p.open = append(p.open, int32(len(p.nodes)))
		if err := p.string(); err != nil {
			return err
		}
		p.space()
		if !p.accept(':') {
			return ErrSyntax
		}
		p.space()
		if err := p.value(depth + 1); err != nil {
			return err
		}
		p.space()
	}
	p.nodes[i].next = int32(len(p.nodes))
	return p.closeObject(i, mark)
}
