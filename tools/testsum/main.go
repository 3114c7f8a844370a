// Command testsum summarizes the output of go test -json on its standard input for a person: the
// closing line of each package, everything about failures, the reason of each skip, and a last
// line with the totals.
//
//	go test -json ./... | go run ./tools/testsum -forbid-skip 'redis-server'
//
// It exits with status 1 if a test or a package failed, if no test ran, or if a test skipped
// with a message that matches -forbid-skip. A machine that should have everything the tests need
// must not pass by skipping tests.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	forbid := flag.String("forbid-skip", "", "fail if a test was skipped with a message that matches this `regexp`")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *forbid); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}

// run reads events from r until its end and writes the summary to w.
func run(r io.Reader, w io.Writer, forbid string) error {
	forbidden, err := regexp.Compile(forbid)
	if err != nil {
		return err
	}
	s := summary{w: w, open: map[string]map[string][]string{}, failures: map[string]bool{}}
	// A line is as long as a test's output line, for which bufio.Scanner has a limit.
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	return s.finish(func(message string) bool { return forbid != "" && forbidden.MatchString(message) })
}

// event is one line of go test -json; see go doc cmd/test2json.
type event struct {
	Action, Package, Test, Output string
}

// summary is the state after the events read so far.
type summary struct {
	w    io.Writer
	open map[string]map[string][]string // output by package and test, "" being the package itself

	passed, failed, skipped int
	failures                map[string]bool // packages with a failed test
	skips                   []skip
}

type skip struct{ test, message string }

func (s *summary) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "build-output" {
		// Output of the compiler, or a line that is not an event.
		if e.Output != "" {
			line = e.Output
		}
		fmt.Fprint(s.w, line)
		return
	}
	switch {
	case e.Package == "":
	case e.Action == "output":
		if s.open[e.Package] == nil {
			s.open[e.Package] = map[string][]string{}
		}
		s.open[e.Package][e.Test] = append(s.open[e.Package][e.Test], e.Output)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
	}
}

func (s *summary) endTest(e event) {
	output := s.open[e.Package]
	switch e.Action {
	case "pass":
		s.passed++
		delete(output, e.Test)
	case "skip":
		s.skipped++
		s.skips = append(s.skips, skip{e.Package + " " + e.Test, message(output[e.Test])})
		delete(output, e.Test)
	case "fail":
		s.failed++
		s.failures[e.Package] = true
	}
}

// endPackage prints the package's closing line. If the package failed, it first prints the
// output of every test that did not pass: failed tests, and tests that a panic or a time-out
// left unfinished.
func (s *summary) endPackage(e event) {
	output := s.open[e.Package]
	delete(s.open, e.Package)
	if e.Action != "fail" {
		if own := output[""]; len(own) > 0 {
			fmt.Fprint(s.w, own[len(own)-1])
		}
		return
	}
	if !s.failures[e.Package] {
		s.failed++ // It does not build, or ended outside any test.
	}
	own := output[""]
	delete(output, "")
	for _, test := range slices.Sorted(maps.Keys(output)) {
		fmt.Fprint(s.w, strings.Join(output[test], ""))
	}
	fmt.Fprint(s.w, strings.Join(own, ""))
}

func (s *summary) finish(forbidden func(string) bool) error {
	for _, pkg := range slices.Sorted(maps.Keys(s.open)) {
		fmt.Fprintf(s.w, "FAIL\t%s\tno end of it was reported\n", pkg)
		s.endPackage(event{Action: "fail", Package: pkg})
	}
	refused := 0
	for _, skip := range s.skips {
		fmt.Fprintf(s.w, "skipped: %s: %s\n", skip.test, skip.message)
		if forbidden(skip.message) {
			refused++
		}
	}
	fmt.Fprintf(s.w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	switch {
	case s.failed > 0:
		return fmt.Errorf("%d failed", s.failed)
	case refused > 0:
		return fmt.Errorf("%d skipped that must run here", refused)
	case s.passed == 0:
		return errors.New("no test passed")
	}
	return nil
}

// message returns the reason that a skipped test gave: its output without the lines
// that the testing package frames it with and without the position in the source.
func message(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		said = append(said, position.ReplaceAllString(line, ""))
	}
	return strings.Join(said, " ")
}

var position = regexp.MustCompile(`^\S+\.go:\d+: `)
