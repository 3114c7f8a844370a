package jcs

// parse fills the document with the text src.
func (d *document) parse(src []byte) error {
	d.nodes, d.text, d.members, d.open = d.nodes[:0], d.text[:0], d.members[:0], d.open[:0]
	if len(src) > MaxSize {
		return ErrSize
	}
	p := parser{document: d, src: src}
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

// A parser reads a text from front to back and appends the values it finds to a document.
type parser struct {
	*document
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
