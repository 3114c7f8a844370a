package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A mutant is one protection of the library and the change that takes it out.
type mutant struct {
	line   int    // where it begins in the table
	group  string // the heading that it stands under
	name   string
	guards string   // the protection, in a sentence
	test   []string // arguments of go test: packages and flags
	run    string   // which tests to run; empty means those that die
	dies   []string // tests that must be among those that fail
	// hangs is how long to wait for a mutant that never ends, or 0 for one that must.
	hangs time.Duration
	edits []edit
}

// An edit replaces a text that occurs exactly once in a file.
type edit struct{ file, old, new string }

var mutantName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// parseTable reads a table; its head describes the format. All mistakes are reported at
// once, with their lines.
func parseTable(text string) ([]*mutant, error) {
	var (
		mutants []*mutant
		errs    []error
		group   string
		m       *mutant
		names   = map[string]bool{}
		inNew   bool // the last line was of the new text
	)
	for i, line := range strings.Split(text, "\n") {
		mistake := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("line %d: %s", i+1, fmt.Sprintf(format, args...)))
		}
		if heading, ok := strings.CutPrefix(line, "== "); ok {
			group, m = heading, nil
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		if word != "-" && word != "+" {
			rest = strings.TrimSpace(rest)
		}
		if word == "mutant" {
			m = &mutant{line: i + 1, group: group, name: rest}
			mutants = append(mutants, m)
			if !mutantName.MatchString(rest) || names[rest] {
				mistake("%q is no new name of lower-case words joined by hyphens", rest)
			}
			names[rest] = true
			continue
		}
		if m == nil {
			mistake("%q stands outside of a mutant", word)
			continue
		}
		var last *edit
		if n := len(m.edits); n > 0 {
			last = &m.edits[n-1]
		}
		switch {
		case word == "guards":
			m.guards = strings.TrimSpace(m.guards + " " + rest)
		case word == "test":
			m.test = append(m.test, strings.Fields(rest)...)
		case word == "run":
			m.run = rest
		case word == "dies":
			m.dies = append(m.dies, strings.Fields(rest)...)
		case word == "hangs":
			var err error
			if m.hangs, err = time.ParseDuration(rest); err != nil || m.hangs <= 0 {
				mistake("hangs needs a time, such as 20s")
			}
		case word == "file":
			m.edits = append(m.edits, edit{file: rest})
			inNew = false
		case word == "-" && last != nil && !inNew:
			last.old += "\n" + rest
		case word == "+" && last != nil:
			last.new += "\n" + rest
			inNew = true
		default:
			mistake("%q is not expected here", word)
		}
	}
	for _, m := range mutants {
		if err := m.complete(); err != nil {
			errs = append(errs, fmt.Errorf("line %d: mutant %s: %w", m.line, m.name, err))
		}
	}
	return mutants, errors.Join(errs...)
}

// complete ends the reading of a mutant and reports what is missing.
func (m *mutant) complete() error {
	for i := range m.edits {
		e := &m.edits[i]
		e.old, e.new = strings.TrimPrefix(e.old, "\n"), strings.TrimPrefix(e.new, "\n")
		if e.old == "" || e.file == "" || e.old == e.new {
			return errors.New("an edit needs a file, its old text and another new one")
		}
	}
	switch {
	case m.group == "":
		return errors.New("it stands under no heading")
	case m.guards == "" || len(m.test) == 0 || len(m.edits) == 0:
		return errors.New("it needs guards, test and file")
	}
	return nil
}

// apply returns, by path, the changed content of the files that the mutant changes.
func (m *mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s: the old text occurs %d times and not once: %q", e.file, n, e.old)
		}
		files[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}

// pattern returns the argument of -run: the one in the table, or exactly the tests that must
// fail.
func (m *mutant) pattern() string {
	if m.run != "" {
		return m.run
	}
	alternatives := make([]string, 0, len(m.dies))
	for _, name := range m.dies {
		if name == testMain {
			continue // fails after the tests, whichever they are
		}
		levels := strings.Split(name, "/")
		for i, level := range levels {
			levels[i] = "^" + regexp.QuoteMeta(level) + "$"
		}
		alternatives = append(alternatives, strings.Join(levels, "/"))
	}
	if len(alternatives) == 0 {
		return "." // an entry that is being written: see what dies
	}
	return strings.Join(alternatives, "|")
}
