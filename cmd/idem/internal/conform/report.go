package conform

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

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
	text := ""
	for _, level := range []Level{Must, Should, Info} {
		text += fmt.Sprintf("%s: %d hold, %d fail, %d not tried. ", level, r.Count(level, Holds), r.Count(level, Fails), r.Count(level, NotTried))
	}
	return text + fmt.Sprintf("%d requests.", r.Requests)
}

// called is the name of a server in a matrix.
func (r *Report) called() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Method + " " + r.Target
}

// printers print reports, by the names of the forms.
var printers = map[string]func(io.Writer, []*Report) error{
	"table":    printTable,
	"json":     printJSON,
	"tap":      printTAP,
	"junit":    printJUnit,
	"html":     printHTML,
	"markdown": printMarkdown,
}

// Formats returns the forms in which reports can be printed.
func Formats() []string { return slices.Sorted(maps.Keys(printers)) }

// Print prints reports.
func Print(w io.Writer, format string, reports ...*Report) error {
	f, ok := printers[format]
	if !ok {
		return fmt.Errorf("%w: there is no form %q", ErrConfig, format)
	}
	return f(w, reports)
}

// Read reads what the form json has printed.
func Read(r io.Reader) (reports []*Report, err error) {
	for d := json.NewDecoder(r); d.More(); {
		var report Report
		if err := d.Decode(&report); err != nil {
			return nil, err
		}
		if report.Type != "conformance" {
			return nil, fmt.Errorf("%w: it is no report, but of type %q", ErrConfig, report.Type)
		}
		reports = append(reports, &report)
	}
	return reports, nil
}

func printJSON(w io.Writer, reports []*Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, r := range reports {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
