package report

import (
	"encoding/xml"
	"fmt"
	"io"
)

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
			switch f.Result {
			case NotTried:
				c.Skipped = &junitText{Message: f.Reason}
			case Fails:
				what := &junitText{Message: string(f.Level) + " fails: " + f.Claim, Text: f.Why() + "\n"}
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
