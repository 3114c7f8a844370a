package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
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
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}

// plain returns a text that a terminal does not obey: routes, steps and keys come from elsewhere.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// names lists names for people: none is a dash.
func names(list []string) string {
	if len(list) == 0 || list[0] == "" {
		return "-"
	}
	return strings.Join(list, ", ")
}

// quoted lists names in a sentence.
func quoted(list []string) string {
	quotes := make([]string, len(list))
	for i, name := range list {
		quotes[i] = strconv.Quote(name)
	}
	return strings.Join(quotes, ", ")
}

// span says how long something lasts, as exactly as a person needs it.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
