package conform

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

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
	}
	return nil
}

// printTAP prints version 14 of the Test Anything Protocol. What fails and is no MUST has the
// directive TODO, with which a harness does not count it.
func printTAP(w io.Writer, reports []*Report) error {
	n := 0
	for _, r := range reports {
		n += len(r.Findings)
	}
	fmt.Fprintf(w, "TAP version 14\n1..%d\n", n)
	n = 0
	for _, r := range reports {
		for _, f := range r.Findings {
			n++
			line := map[Result]string{Holds: "ok", Fails: "not ok", NotTried: "ok"}[f.Result] +
				fmt.Sprintf(" %d - %s %s: %s", n, f.Level, f.Check, tapText(f.Claim))
			switch {
			case f.Result == NotTried:
				line += " # SKIP " + tapText(f.Reason)
			case f.Result == Fails && f.Level != Must:
				line += " # TODO " + string(f.Level)
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

// The form of JUnit, as far as CI systems agree on it.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Failure *junitText `xml:"failure"`
		Skipped *junitText `xml:"skipped"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// printJUnit counts what fails and is no MUST as skipped: JUnit has no word for it.
func printJUnit(w io.Writer, reports []*Report) error {
	var all junitSuites
	for _, r := range reports {
		suite := junitSuite{Name: r.called() + " by " + r.Profile, Tests: len(r.Findings)}
		for _, f := range r.Findings {
			c := junitCase{Class: f.Group, Name: f.Check}
			switch {
			case f.Result == NotTried:
				c.Skipped = &junitText{Message: f.Reason}
			case f.Result == Fails:
				text := ""
				for _, line := range f.details() {
					text += line[0] + ": " + line[1] + "\n"
				}
				what := &junitText{Message: string(f.Level) + " fails: " + f.Claim, Text: text}
				if c.Skipped = what; f.Level == Must {
					c.Skipped, c.Failure = nil, what
				}
			}
			if c.Skipped != nil {
				suite.Skipped++
			}
			if c.Failure != nil {
				suite.Failures++
			}
			suite.Cases = append(suite.Cases, c)
		}
		all.Suites = append(all.Suites, suite)
	}
	fmt.Fprint(w, xml.Header)
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}
