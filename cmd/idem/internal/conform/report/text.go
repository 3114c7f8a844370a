package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// printTable is for people.
func printTable(w io.Writer, reports []*Report) error {
	for _, r := range reports {
		fmt.Fprintf(w, "%s %s by profile %s\n\n", r.Method, plain(r.Target), r.Profile)
		table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, "CHECK\tLEVEL\tRESULT\tCLAIM, OR WHY IT WAS NOT TRIED")
		for _, f := range r.Findings {
			text := f.Claim
			if f.Result == NotTried {
				text = plain(f.Reason)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Check, f.Level, f.Result, text)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		for _, f := range r.Findings {
			if f.Result != Fails {
				continue
			}
			fmt.Fprintf(w, "\n%s, %s, fails: %s\n", f.Check, f.Level, f.Claim)
			for _, line := range f.details() {
				fmt.Fprintf(w, "    %-10s%s\n", line[0], line[1])
			}
		}
		fmt.Fprintf(w, "\n%s\n", r.summary())
		for _, note := range r.Notes {
			fmt.Fprintln(w, plain(note))
		}
	}
	return nil
}

// printTAP prints version 14 of the Test Anything Protocol. What fails and is no MUST has the
// directive todo, in whose case is no meaning, and with which a harness does not count it.
func printTAP(w io.Writer, reports []*Report) error {
	n := 0
	for _, r := range reports {
		n += len(r.Findings)
	}
	fmt.Fprintf(w, "TAP version 14\n1..%d\n", n)
	n = 0
	for _, r := range reports {
		for _, note := range r.Notes {
			fmt.Fprintln(w, "# "+tapText(note))
		}
		for _, f := range r.Findings {
			n++
			line := map[Result]string{Holds: "ok", Fails: "not ok", NotTried: "ok"}[f.Result] +
				fmt.Sprintf(" %d - %s %s: %s", n, f.Level, f.Check, tapText(f.Claim))
			switch {
			case f.Result == NotTried:
				line += " # SKIP " + tapText(f.Reason)
			case f.Result == Fails && f.Level != Must:
				line += " # todo " + string(f.Level)
			}
			fmt.Fprintln(w, line)
			if f.Result == Fails {
				fmt.Fprintln(w, "  ---")
				for i, line := range f.details() {
					fmt.Fprintf(w, "  %s_%d: %s\n", line[0], i+1, strconv.Quote(line[1]))
				}
				fmt.Fprintln(w, "  ...")
			}
		}
	}
	return nil
}

// tapText keeps a text from being read as a directive or as a second line.
func tapText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "#", `\#`, "\n", " ", "\r", " ").Replace(plain(s))
}
