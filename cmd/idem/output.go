package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// A listing is what a command prints: rows of a table for people, or one JSON object a line.
type listing struct {
	app   *app
	table *tabwriter.Writer
	head  []string
	n     int
}

func (a *app) list(head ...string) *listing {
	return &listing{app: a, table: tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0), head: head}
}

// add prints a row, which is v or the cells.
func (l *listing) add(v any, cells ...string) {
	if l.app.format == asJSON {
		l.app.encode(l.app.out, v)
		return
	}
	if l.n++; l.n == 1 && len(l.head) > 0 {
		fmt.Fprintln(l.table, strings.Join(l.head, "\t"))
	}
	for i, cell := range cells {
		cells[i] = plain(cell)
	}
	fmt.Fprintln(l.table, strings.Join(cells, "\t"))
}

// end prints what is left of the table and then, for people, a remark on it.
func (l *listing) end(remark string) {
	if l.app.format == asJSON {
		return
	}
	_ = l.table.Flush()
	if remark != "" {
		fmt.Fprintln(l.app.out, remark)
	}
}

// encode prints an object in a line.
func (*app) encode(to io.Writer, v any) {
	var line strings.Builder
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	for _, r := range line.String() {
		if r < utf8.RuneSelf || unicode.IsPrint(r) {
			fmt.Fprintf(to, "%c", r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) { // a terminal might obey it
			fmt.Fprintf(to, `\u%04x`, unit)
		}
	}
}

// plain returns a text that a terminal does not obey: routes, steps and keys come from elsewhere.
func plain(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
