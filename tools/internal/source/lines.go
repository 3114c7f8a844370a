package source

import (
	"bytes"
	"go/scanner"
	"go/token"
	"strings"
)

// Lines returns how many lines a Go file has, and how many of them have code: neither blank ones
// nor those that have only a comment.
func Lines(src []byte) (all, code int) {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for last := 0; ; {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return bytes.Count(src, []byte("\n")), code
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // the scanner has put it there
		}
		first := file.Line(pos)
		end := first + strings.Count(text, "\n")
		code += max(0, end-max(first-1, last))
		last = max(last, end)
	}
}
