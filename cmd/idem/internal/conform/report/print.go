package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

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
		return fmt.Errorf("there is no form %q", format)
	}
	return f(w, reports)
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
