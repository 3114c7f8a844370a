package main

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"example.com/idempotency/tools/internal/source"
)

// importRules are the rules of imports.txt.
type importRules struct {
	rows []*importRow
}

// An importRow says what some packages, or some files, may import.
type importRow struct {
	line    int
	planned bool
	who     []pattern
	may     []allowed
	never   []string
	used    bool
}

// allowed is a word of a row. A group stands for the patterns of its line.
type allowed struct {
	word     string
	patterns []pattern
	used     bool
}

// files tells whether the row is about files, and not about packages.
func (r *importRow) files() bool { return strings.HasSuffix(r.who[0].text, ".go") }

func (r *importRow) about(name string) bool {
	return slices.ContainsFunc(r.who, func(p pattern) bool { return p.matches(name) })
}

func parseImports(text string) (*importRules, error) {
	rules := &importRules{}
	groups := map[string][]pattern{}
	planned := false
	err := eachLine(text, func(line int, words []string) error {
		switch {
		case len(words) == 2 && words[0] == "==" && words[1] == "planned":
			planned = true
			return nil
		case len(words) > 2 && words[1] == "=":
			for _, word := range words[2:] {
				groups["$"+words[0]] = append(groups["$"+words[0]], newPattern(word))
			}
			return nil
		}
		i := slices.IndexFunc(words, func(word string) bool { return strings.HasSuffix(word, ":") })
		if i < 0 {
			return errors.New("neither PACKAGES: IMPORTS, nor GROUP = PATTERNS, nor == planned")
		}
		row := &importRow{line: line, planned: planned}
		for _, word := range words[:i+1] {
			row.who = append(row.who, newPattern(strings.TrimSuffix(word, ":")))
		}
		for _, word := range words[i+1:] {
			if banned, ok := strings.CutPrefix(word, "!"); ok {
				row.never = append(row.never, banned)
				continue
			}
			a := allowed{word: word, patterns: []pattern{newPattern(word)}}
			if strings.HasPrefix(word, "$") {
				if a.patterns = groups[word]; a.patterns == nil {
					return fmt.Errorf("there is no group %s above", word[1:])
				}
			}
			row.may = append(row.may, a)
		}
		rules.rows = append(rules.rows, row)
		return nil
	})
	return rules, err
}

// decide returns the rows about the file of a package: the first that matches the package, of
// those in force and of those planned, and all that match the file.
func (rules *importRules) decide(dir, file string) (rows []*importRow) {
	found := map[bool]bool{}
	for _, row := range rules.rows {
		switch {
		case row.files():
			if row.about(file) {
				rows = append(rows, row)
			}
		case !found[row.planned] && row.about(dir):
			found[row.planned] = true
			rows = append(rows, row)
		}
	}
	return rows
}

// check names the imports that no row admits, the packages that have no row, and the rows that
// say nothing.
func (rules *importRules) check(t *tree, set *source.Set, kits []pattern) (problems []string) {
	w := &workspace{set, map[string]string{}, map[string]string{}}
	for _, p := range set.Packages {
		w.names[p.ImportPath] = t.name(p.Dir)
		w.paths[t.name(p.Dir)] = p.ImportPath
	}
	for _, p := range set.Packages {
		dir := w.names[p.ImportPath]
		rows := rules.decide(dir, "")
		if len(rows) == 0 && t.product(dir, kits) {
			problems = append(problems, fmt.Sprintf("%s: no row is about %s: add one", importsFile, dir))
		}
		if len(rows) > 0 {
			problems = append(problems, rules.checkFiles(w, p)...)
			problems = append(problems, w.checkBanned(p, rows)...)
		}
	}
	return append(problems, rules.stale()...)
}

// A workspace knows packages by name: those of the repository by their folders.
type workspace struct {
	set          *source.Set
	names, paths map[string]string // by path, and by name
}

func (w *workspace) name(path string) string { return cmp.Or(w.names[path], path) }

func (rules *importRules) checkFiles(w *workspace, p *source.Package) (problems []string) {
	for i, syntax := range p.Syntax {
		file := path.Join(w.name(p.ImportPath), p.GoFiles[i])
		rows := rules.decide(w.name(p.ImportPath), file)
		for _, row := range rows {
			row.used = true
		}
		for _, spec := range syntax.Imports {
			path, _ := strconv.Unquote(spec.Path.Value) // it has been parsed
			first, _, _ := strings.Cut(path, "/")
			standard := w.names[path] == "" && !strings.Contains(first, ".")
			if !standard && !allow(rows, w.name(path)) {
				about := slices.IndexFunc(rows, func(r *importRow) bool { return !r.files() })
				problems = append(problems, fmt.Sprintf("%s may not import %s (%s:%d)", file, w.name(path), importsFile, rows[about].line))
			}
		}
	}
	return problems
}

func (w *workspace) checkBanned(p *source.Package, rows []*importRow) (problems []string) {
	for _, row := range rows {
		for _, banned := range row.never {
			chain := w.set.Chain(p, cmp.Or(w.paths[banned], banned))
			for i, path := range chain {
				chain[i] = w.name(path)
			}
			if len(chain) > 0 {
				problems = append(problems, fmt.Sprintf("%s may not reach %s, and imports %s (%s:%d)",
					w.name(p.ImportPath), banned, strings.Join(chain, ", which imports "), importsFile, row.line))
			}
		}
	}
	return problems
}

// allow tells whether one of the rows has a word for an import.
func allow(rows []*importRow, name string) (ok bool) {
	for _, row := range rows {
		for i := range row.may {
			if slices.ContainsFunc(row.may[i].patterns, func(p pattern) bool { return p.matches(name) }) {
				row.may[i].used = true
				ok = true
			}
		}
	}
	return ok
}

// stale names the rows in force that are about nothing, and their words that nobody needs.
func (rules *importRules) stale() (problems []string) {
	for _, row := range rules.rows {
		switch {
		case row.planned:
		case !row.used:
			problems = append(problems, fmt.Sprintf("%s:%d: there is no %s: remove the row", importsFile, row.line, row.who[0].text))
		default:
			for _, a := range row.may {
				if !a.used {
					problems = append(problems, fmt.Sprintf("%s:%d: %s does not import %s: remove that", importsFile, row.line, row.who[0].text, a.word))
				}
			}
		}
	}
	return problems
}
