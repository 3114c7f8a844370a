// Command platforms type-checks packages and their tests as a compiler for another platform would,
// and asks the analyzers of vet what depends on it.
//
//	GOOS=windows GOARCH=386 go run ./tools/platforms ./...
//
// It reads everything from source, and skips the bodies of functions of other modules. So nothing
// is compiled, which would take six times as long. The command exits with status 1 if anything is wrong.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/atomicalign"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/packages"
)

// What these find can lie in the size of an int, or in the files of one platform. The linter runs
// all of vet on those of Linux.
var analyzers = []*analysis.Analyzer{
	atomicalign.Analyzer, copylock.Analyzer, shift.Analyzer, unsafeptr.Analyzer, unusedresult.Analyzer,
}

func main() {
	dir, err := os.Getwd()
	var problems []string
	if err == nil {
		problems, err = check(dir, os.Environ(), os.Args[1:]...)
	}
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, "platforms:", problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// check returns what is wrong with the packages below dir that match the patterns, on the platform of the
// environment.
func check(dir string, env []string, patterns ...string) (problems []string, err error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax, Dir: dir, Env: env, Tests: true,
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, dir) {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok {
						f.Body = nil
					}
				}
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return nil, err
	}
	if len(loaded) == 0 {
		return nil, errors.New("there are no packages")
	}
	for _, p := range loaded {
		if strings.HasSuffix(p.PkgPath, ".test") {
			continue // the go command has written it, elsewhere
		}
		for _, e := range p.Errors {
			problems = append(problems, e.Error())
		}
		if len(p.Errors) > 0 {
			continue
		}
		for _, a := range analyzers {
			_, err := a.Run(&analysis.Pass{
				Analyzer: a, Fset: p.Fset, Files: p.Syntax, Pkg: p.Types, TypesInfo: p.TypesInfo, TypesSizes: p.TypesSizes,
				ResultOf: map[*analysis.Analyzer]any{inspect.Analyzer: inspector.New(p.Syntax)},
				Report: func(d analysis.Diagnostic) {
					problems = append(problems, fmt.Sprintf("%s: %s", p.Fset.Position(d.Pos), d.Message))
				},
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(problems) // files without tests are in two packages
	return slices.Compact(problems), nil
}
