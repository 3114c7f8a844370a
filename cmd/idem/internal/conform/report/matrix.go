package report

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

// A matrix has a row for each check and a column for each server, of one profile.
type matrix struct {
	Profile, Source string
	Servers         []*Report
	Rows            []row
}

type row struct {
	Check, Claim string
	Level        Level
	Cells        []*Finding // nil where a report does not have the check
}

// matrices makes one matrix for each profile.
func matrices(reports []*Report) (all []*matrix) {
	for _, r := range reports {
		i := slices.IndexFunc(all, func(m *matrix) bool { return m.Profile == r.Profile })
		if i < 0 {
			all, i = append(all, &matrix{Profile: r.Profile, Source: r.Source}), len(all)
		}
		all[i].Servers = append(all[i].Servers, r)
	}
	for _, m := range all {
		for _, check := range inOrder(m.Servers) {
			m.add(check)
		}
	}
	return all
}

// inOrder returns the checks of reports. A report that has more of them than others has them last.
func inOrder(reports []*Report) (all []string) {
	for _, r := range reports {
		for _, f := range r.Findings {
			if !slices.Contains(all, f.Check) {
				all = append(all, f.Check)
			}
		}
	}
	return all
}

// Documented begins the names of checks of what a server publishes itself.
const Documented = "published-"

// add adds a row, unless no server has shown anything there. What is as it is published needs no row.
func (m *matrix) add(check string) {
	to, shown := row{Check: check}, false
	for _, r := range m.Servers {
		var cell *Finding
		if i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Check == check }); i >= 0 {
			cell = &r.Findings[i]
			to.Claim, to.Level = cell.Claim, cell.Level
			shown = shown || cell.Result == Fails || cell.Result == Holds && !strings.HasPrefix(check, Documented)
		}
		to.Cells = append(to.Cells, cell)
	}
	if shown {
		m.Rows = append(m.Rows, to)
	}
}

// Mark is a result as a word of a cell.
func (f *Finding) Mark() string {
	switch {
	case f == nil || f.Result == NotTried:
		return "–"
	case f.Result == Holds:
		return "yes"
	case f.Level == Must:
		return "**no**"
	}
	return "no"
}

// Why says more of a result than its mark.
func (f *Finding) Why() string {
	switch {
	case f == nil || f.Result == Holds:
		return ""
	case f.Result == NotTried:
		return f.Reason
	}
	var lines []string
	for _, line := range f.details() {
		lines = append(lines, line[0]+": "+line[1])
	}
	return strings.Join(lines, "\n")
}

// Result is what was found of a server, in numbers.
func (r *Report) Result() string { return r.summary() }

// Called is the name of a server.
func (r *Report) Called() string { return r.called() }

//go:embed matrix.html
var pageText string

var page = template.Must(template.New("matrix").Parse(pageText))

func printHTML(w io.Writer, reports []*Report) error { return page.Execute(w, matrices(reports)) }

func printMarkdown(w io.Writer, reports []*Report) error {
	for i, m := range matrices(reports) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "## By profile %s\n\n| check | level |", m.Profile)
		for _, r := range m.Servers {
			fmt.Fprintf(w, " %s |", cell(r.called()))
		}
		fmt.Fprintln(w, "\n|---|---|"+strings.Repeat("---|", len(m.Servers)))
		for _, row := range m.Rows {
			fmt.Fprintf(w, "| `%s`: %s | %s |", row.Check, cell(row.Claim), row.Level)
			for _, f := range row.Cells {
				fmt.Fprintf(w, " %s |", f.Mark())
			}
			fmt.Fprintln(w)
		}
		for _, level := range []Level{Must, Should} {
			fmt.Fprintf(w, "| %s that fail | |", level)
			for _, r := range m.Servers {
				fmt.Fprintf(w, " %d of %d |", r.Count(level, Fails), r.Count(level, Fails)+r.Count(level, Holds))
			}
			fmt.Fprintln(w)
		}
	}
	return nil
}

// cell returns a text that ends no cell.
func cell(s string) string { return strings.ReplaceAll(plain(s), "|", `\|`) }
