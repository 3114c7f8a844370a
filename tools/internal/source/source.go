// Package source reads packages as the compiler sees them: type-checked, without their tests and
// without the files of other platforms.
package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Set is what one run of go list found.
type Set struct {
	// Fset has the positions of all files.
	Fset *token.FileSet
	// Packages are those that were asked for and have source files, sorted by import path.
	Packages []*Package

	listed   map[string]*Package // by import path, with all dependencies
	importer types.Importer
}

// A Package is one that was asked for, or a dependency. Only the former have files and types.
type Package struct {
	Dir        string // absolute
	ImportPath string
	Imports    []string // paths, those of the tests left out
	GoFiles    []string // names in Dir, sorted
	Export     string   // the file of its export data
	DepOnly    bool     // nobody asked for it

	Syntax []*ast.File // one for each of GoFiles, with comments
	Types  *types.Package
	Info   *types.Info
}

// Load lists the packages that match the patterns and type-checks them. It runs in dir, and needs
// a module or a workspace there. Dependencies come from the export data that go list makes, so
// that only what was asked for is parsed.
func Load(ctx context.Context, dir string, patterns ...string) (*Set, error) {
	s := &Set{Fset: token.NewFileSet(), listed: map[string]*Package{}}
	if err := s.list(ctx, dir, patterns); err != nil {
		return nil, err
	}
	s.importer = importer.ForCompiler(s.Fset, "gc", func(path string) (io.ReadCloser, error) {
		p := s.listed[path]
		if p == nil || p.Export == "" {
			return nil, fmt.Errorf("nothing that was loaded imports %s", path)
		}
		return os.Open(p.Export)
	})
	slices.SortFunc(s.Packages, func(a, b *Package) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	for _, p := range s.Packages {
		if err := s.check(p); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Set) list(ctx context.Context, dir string, patterns []string) error {
	args := []string{"list", "-deps", "-export", "-json=Dir,ImportPath,Imports,GoFiles,Export,DepOnly", "--"}
	cmd := exec.CommandContext(ctx, "go", append(args, patterns...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(Package)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		s.listed[p.ImportPath] = p
		if !p.DepOnly && len(p.GoFiles) > 0 {
			s.Packages = append(s.Packages, p)
		}
	}
}

func (s *Set) check(p *Package) error {
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(s.Fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.Syntax = append(p.Syntax, file)
	}
	p.Info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: s.importer}
	var err error
	p.Types, err = conf.Check(p.ImportPath, s.Fset, p.Syntax, p.Info)
	return err
}

// Import returns the types of a package that was loaded, or of one that such a package imports,
// directly or not.
func (s *Set) Import(path string) (*types.Package, error) { return s.importer.Import(path) }

// Chain returns a shortest way on which a package comes to import another: the paths of the
// packages between, and of the other at the end. It is empty if there is none.
func (s *Set) Chain(from *Package, to string) []string {
	importer := map[string]string{}
	for next := []string{from.ImportPath}; len(next) > 0; next = next[1:] {
		p := s.listed[next[0]]
		if p == nil {
			continue // "C", which is not a package
		}
		for _, path := range p.Imports {
			if _, seen := importer[path]; seen {
				continue
			}
			importer[path] = next[0]
			if path != to {
				next = append(next, path)
				continue
			}
			var chain []string
			for at := to; at != from.ImportPath; at = importer[at] {
				chain = append(chain, at)
			}
			slices.Reverse(chain)
			return chain
		}
	}
	return nil
}
