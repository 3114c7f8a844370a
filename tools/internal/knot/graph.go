// Package knot finds the circles in which the source files of a package use each other.
package knot

import (
	"go/token"
	"go/types"
	"maps"
	"slices"

	"example.com/idempotency/tools/internal/source"
)

// A Graph has the source files of a package as its nodes, numbered by name, and an arrow from
// each file to every other file that it uses. A file uses another if it names a package-level
// declaration, a method or a field that stands there. A selector that reaches a promoted method
// or field also uses the embedded fields on its way. Calling a method of an interface uses only
// the file of the interface.
type Graph struct {
	Files []string
	uses  []map[int]map[string]bool // of each file: the files that it uses, and by which names
}

// Draw makes the graph of a package.
func Draw(set *source.Set, p *source.Package) *Graph {
	g := &Graph{Files: p.GoFiles, uses: make([]map[int]map[string]bool, len(p.GoFiles))}
	number := map[*token.File]int{}
	for i, file := range p.Syntax {
		number[set.Fset.File(file.FileStart)] = i
		g.uses[i] = map[int]map[string]bool{}
	}
	owners := owners(p.Types)
	use := func(at token.Pos, obj types.Object) {
		obj = generic(obj)
		if obj.Pkg() != p.Types || (obj.Parent() != nil && obj.Parent() != p.Types.Scope()) {
			return // another package's, or local
		}
		from, to := number[set.Fset.File(at)], number[set.Fset.File(obj.Pos())]
		if from == to {
			return
		}
		if g.uses[from][to] == nil {
			g.uses[from][to] = map[string]bool{}
		}
		g.uses[from][to][owners[obj]+obj.Name()] = true
	}
	for ident, obj := range p.Info.Uses {
		use(ident.Pos(), obj)
	}
	for expr, selection := range p.Info.Selections {
		holder, path := selection.Recv(), selection.Index()
		for _, i := range path[:len(path)-1] {
			if pointer, ok := holder.Underlying().(*types.Pointer); ok {
				holder = pointer.Elem()
			}
			embedded := holder.Underlying().(*types.Struct).Field(i)
			use(expr.Sel.Pos(), embedded)
			holder = embedded.Type()
		}
	}
	return g
}

// generic returns the declared method or field of which obj may be an instance.
func generic(obj types.Object) types.Object {
	switch obj := obj.(type) {
	case *types.Func:
		return obj.Origin()
	case *types.Var:
		return obj.Origin()
	}
	return obj
}

// owners returns what precedes the names of the methods and fields of a package's types.
func owners(pkg *types.Package) map[types.Object]string {
	owners := map[types.Object]string{}
	for _, name := range pkg.Scope().Names() {
		named, ok := pkg.Scope().Lookup(name).Type().(*types.Named)
		if !ok || named.Obj().Name() != name {
			continue
		}
		for method := range named.Methods() {
			owners[method] = name + "."
		}
		switch t := named.Underlying().(type) {
		case *types.Struct:
			for field := range t.Fields() {
				owners[field] = name + "."
			}
		case *types.Interface:
			for method := range t.ExplicitMethods() {
				owners[method] = name + "."
			}
		}
	}
	return owners
}

// Uses returns the files that a file uses, in order.
func (g *Graph) Uses(file int) []int { return slices.Sorted(maps.Keys(g.uses[file])) }

// Names returns the names that an arrow rides on, in order.
func (g *Graph) Names(from, to int) []string { return slices.Sorted(maps.Keys(g.uses[from][to])) }
