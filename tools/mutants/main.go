// Command mutants takes out the protections of the library, one at a time, and demands that
// the tests notice.
//
//	go run ./tools/mutants                run all mutants of the table
//	go run ./tools/mutants -run regexp    run the mutants whose names match
//	go run ./tools/mutants -list          list their names
//	go run ./tools/mutants -check         only check that table and document match the source
//	go run ./tools/mutants -write         write the table into the document
//	go run ./tools/mutants -ran file      only check that each test which must die was part of a run of
//	                                      all tests, of which the file has the output of go test -json
//
// Run it in the root of the repository. A mutant is an entry of the table: a text of the
// source, the text that replaces it to take the protection out, and the tests that must fail
// then. The command exits with status 1 if a mutant survives, does not compile, or hangs
// unexpectedly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Where the table and the document are, below the root.
const (
	tableFile = "tools/mutants/mutants.txt"
	docFile   = "docs/reference/protections.md"
)

func main() {
	pick := flag.String("run", "", "run only mutants whose name matches this `regexp`")
	list := flag.Bool("list", false, "list the mutants and what they guard")
	check := flag.Bool("check", false, "check that table and document fit the source, and run nothing")
	write := flag.Bool("write", false, "write the table into the document")
	ran := flag.String("ran", "", "check that the tests which must die were part of the run in this `file` of go test -json")
	verbose := flag.Bool("v", false, "print all that the tests say")
	parallel := flag.Int("j", runtime.GOMAXPROCS(0), "how many mutants to run at a time")
	timeout := flag.Duration("timeout", 2*time.Minute, "how long the tests of a mutant may run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := func() error {
		mutants, err := readTable(".")
		switch {
		case err != nil:
			return err
		case *write:
			return writeDoc(".", mutants)
		case *check:
			return checkAll(".", mutants)
		case *ran != "":
			return checkRan(*ran, mutants)
		}
		if mutants, err = choose(mutants, *pick); err != nil {
			return err
		}
		if *list {
			for _, m := range mutants {
				fmt.Printf("%-38s %s\n", m.name, m.guards)
			}
			return nil
		}
		r := &runner{root: ".", parallel: *parallel, timeout: *timeout, verbose: *verbose, out: os.Stdout}
		return r.run(ctx, mutants)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func readTable(root string) ([]*mutant, error) {
	text, err := os.ReadFile(filepath.Join(root, tableFile))
	if err != nil {
		return nil, err
	}
	mutants, err := parseTable(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tableFile, err)
	}
	return mutants, nil
}

// choose returns the mutants whose names match the pattern.
func choose(mutants []*mutant, pattern string) ([]*mutant, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	var chosen []*mutant
	for _, m := range mutants {
		if re.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%s: no mutant matches %q", tableFile, pattern)
	}
	return chosen, nil
}

// writeDoc brings the document up to date.
func writeDoc(root string, mutants []*mutant) error {
	path := filepath.Join(root, docFile)
	doc, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := withTable(string(doc), markdown(mutants))
	if err != nil {
		return fmt.Errorf("%s: %w", docFile, err)
	}
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // as git has it
}

// checkRan reports which tests of the table were no part of a run of all tests. One that skips was: the race
// detector leaves some out.
func checkRan(file string, mutants []*mutant) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	tests := readReport(f).tests
	var errs []error
	for _, m := range mutants {
		for _, name := range m.dies {
			top, _, _ := strings.Cut(name, "/")
			if tests[name] == "" && tests[top] != "skip" && name != testMain {
				errs = append(errs, fmt.Errorf("%s:%d: mutant %s: %s has not run", tableFile, m.line, m.name, name))
			}
		}
	}
	return errors.Join(errs...)
}

// checkAll reports where table, document and source disagree.
func checkAll(root string, mutants []*mutant) error {
	var errs []error
	declared, err := declaredTests(root)
	if err != nil {
		return err
	}
	for _, m := range mutants {
		if _, err := m.apply(root); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: mutant %s: %w", tableFile, m.line, m.name, err))
		}
		if len(m.dies) == 0 {
			errs = append(errs, fmt.Errorf("%s:%d: mutant %s names no test that dies", tableFile, m.line, m.name))
		}
		for _, name := range m.dies {
			if top, _, _ := strings.Cut(name, "/"); !declared[top] {
				errs = append(errs, fmt.Errorf("%s:%d: there is no test %s", tableFile, m.line, top))
			}
		}
	}
	doc, err := os.ReadFile(filepath.Join(root, docFile))
	if err != nil {
		return err
	}
	for n, line := range strings.Split(string(doc), "\n") {
		for _, name := range testFunc.FindAllString(line, -1) {
			if !declared[name] {
				errs = append(errs, fmt.Errorf("%s:%d: there is no test %s", docFile, n+1, name))
			}
		}
	}
	switch text, err := withTable(string(doc), markdown(mutants)); {
	case err != nil:
		errs = append(errs, fmt.Errorf("%s: %w", docFile, err))
	case text != string(doc):
		errs = append(errs, fmt.Errorf("%s is not up to date: go run ./tools/mutants -write", docFile))
	}
	return errors.Join(errs...)
}
