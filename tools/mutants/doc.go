package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// The generated table stands between these lines of the document.
const (
	tableBegin = "<!-- mutants: what follows is written by go run ./tools/mutants -write -->"
	tableEnd   = "<!-- mutants: end -->"
)

// markdown is the table of the document.
func markdown(mutants []*mutant) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d protections.\n", len(mutants))
	group := ""
	for _, m := range mutants {
		if m.group != group {
			group = m.group
			fmt.Fprintf(&b, "\n### %s\n\n| protection | file | tests that fail without it |\n|---|---|---|\n", group)
		}
		var files []string
		for _, e := range m.edits {
			if file := code(e.file); len(files) == 0 || files[len(files)-1] != file {
				files = append(files, file)
			}
		}
		tests := make([]string, 0, len(m.dies))
		for _, name := range m.dies {
			tests = append(tests, code(name))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.ReplaceAll(m.guards, "|", `\|`),
			strings.Join(files, ", "), strings.Join(tests, ", "))
	}
	return b.String()
}

func code(s string) string { return "`" + s + "`" }

// withTable returns the document with the table in its place.
func withTable(doc, table string) (string, error) {
	before, rest, begins := strings.Cut(doc, tableBegin+"\n")
	_, after, ends := strings.Cut(rest, tableEnd+"\n")
	if !begins || !ends {
		return "", errors.New("it has no place for the table")
	}
	return before + tableBegin + "\n\n" + table + "\n" + tableEnd + "\n" + after, nil
}

// testFunc matches the names of tests, benchmarks, fuzz targets and examples, also in prose.
var testFunc = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z]\w*`)

// declaredTests returns the names of the tests, benchmarks, fuzz targets and examples of
// all packages below root, whichever modules they belong to.
func declaredTests(root string) (map[string]bool, error) {
	names := map[string]bool{}
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testFunc.MatchString(f.Name.Name) {
				names[f.Name.Name] = true
			}
		}
		return nil
	})
	return names, err
}
