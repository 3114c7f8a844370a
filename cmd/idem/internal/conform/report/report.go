// Package report is what a test of a server has found, and the forms in which that is shown: for
// people, for CI systems, and beside what was found of other servers.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// A Level says how binding a rule is.
type Level string

// The levels, by the words of RFC 2119. Info is for what is worth knowing, and judges nobody.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
	Info   Level = "INFO"
)

// A Result is what a check has shown.
type Result string

// The results. NotTried is neither: something was missing that the check needs.
const (
	Holds    Result = "holds"
	Fails    Result = "fails"
	NotTried Result = "not-tried"
)

// A Step is what was sent, and what came.
type Step struct {
	Sent string `json:"sent"`
	Came string `json:"came"`
}

// A Report is what was found.
type Report struct {
	Type     string    `json:"type"`
	Name     string    `json:"name,omitempty" jsonschema:"what the server is called in a matrix"`
	Target   string    `json:"target"`
	Method   string    `json:"method"`
	Profile  string    `json:"profile"`
	Source   string    `json:"source,omitempty" jsonschema:"where the rules of the profile stand"`
	Effects  string    `json:"effects,omitempty" jsonschema:"how effects were counted"`
	Requests int       `json:"requests" jsonschema:"how many were sent"`
	Notes    []string  `json:"notes,omitempty" jsonschema:"what bounds the findings: what was not compared, and how effects came"`
	Findings []Finding `json:"checks"`
}

// A Finding is what one check has shown.
type Finding struct {
	Check    string `json:"check"`
	Group    string `json:"group"`
	Claim    string `json:"claim"`
	Level    Level  `json:"level" jsonschema:"MUST, SHOULD or INFO"`
	Says     string `json:"says,omitempty" jsonschema:"who says so"`
	Result   Result `json:"result" jsonschema:"holds, fails or not-tried"`
	Reason   string `json:"reason,omitempty" jsonschema:"why it was not tried"`
	Expected string `json:"expected,omitempty" jsonschema:"what was expected, if it fails"`
	Steps    []Step `json:"steps,omitempty" jsonschema:"what was sent and what came, if it fails"`
}

// Count returns how many checks of a level had a result.
func (r *Report) Count(level Level, result Result) (n int) {
	for _, f := range r.Findings {
		if f.Level == level && f.Result == result {
			n++
		}
	}
	return n
}

// summary counts the results of a report in a sentence.
func (r *Report) summary() string {
	var text strings.Builder
	for _, level := range []Level{Must, Should, Info} {
		fmt.Fprintf(&text, "%s: %d hold, %d fail, %d not tried. ", level, r.Count(level, Holds), r.Count(level, Fails), r.Count(level, NotTried))
	}
	fmt.Fprintf(&text, "%d requests.", r.Requests)
	return text.String()
}

// called is the name of a server in a matrix.
func (r *Report) called() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Method + " " + r.Target
}

// Read reads what the form json has printed.
func Read(r io.Reader) (reports []*Report, err error) {
	for d := json.NewDecoder(r); d.More(); {
		var report Report
		if err := d.Decode(&report); err != nil {
			return nil, err
		}
		if report.Type != "conformance" {
			return nil, fmt.Errorf("it is no report, but of type %q", report.Type)
		}
		reports = append(reports, &report)
	}
	return reports, nil
}

// plain returns a text that a terminal obeys in nothing: answers come from elsewhere.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// details says of a check that fails what was sent, what came, what was expected, and who says so.
func (f *Finding) details() (lines [][2]string) {
	for _, s := range f.Steps {
		lines = append(lines, [2]string{"sent", plain(s.Sent)}, [2]string{"came", plain(s.Came)})
	}
	return append(lines, [2]string{"expected", plain(f.Expected)}, [2]string{"says", f.Says})
}
