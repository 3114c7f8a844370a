// Command knots shows which source files of a package use each other in circles.
//
//	go run ./tools/knots DIR...            print the files, the knots, and how to open these
//	go run ./tools/knots -edges DIR...     also print each arrow, with the names it rides on
//	go run ./tools/knots -q DIR...         print one line for each package
//	go run ./tools/knots -max 8 DIR...     fail if a knot has more files than that
//
// A file uses another if it names a declaration, a method or a field that stands there, and a
// knot is a set of files in which each uses each other, directly or through others. Such files
// can be read, moved and changed only together. For each knot the command prints the files
// without which it falls apart, and the arrows that are cheapest to take out: move what an arrow
// names to the file that uses it or to a lower one, or hand it over as a parameter. Calling
// a method of an interface is an arrow to the interface alone, so an interface turns one around.
//
// DIR is a directory of any module of the workspace, or a pattern of the go command, such as
// ./client/... or work, which means all modules. Tests are left out. The command exits with status 1 if a knot is larger than -max, or if a package
// does not compile.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"example.com/idempotency/tools/internal/knot"
	"example.com/idempotency/tools/internal/source"
)

// cuts is how many arrows are shown for each knot. More of them say little: by then somebody has
// moved something.
const cuts = 8

type printer struct {
	w     io.Writer
	edges bool
	quiet bool
}

func main() {
	p := printer{w: os.Stdout}
	most := flag.Int("max", 0, "fail if a knot has more than `N` files; 0 means no limit")
	flag.BoolVar(&p.edges, "edges", false, "print each arrow with the names that it rides on")
	flag.BoolVar(&p.quiet, "q", false, "print one line for each package")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: knots [-max N] [-edges] [-q] DIR...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := p.run(context.Background(), ".", flag.Args(), *most); err != nil {
		fmt.Fprintln(os.Stderr, "knots:", err)
		os.Exit(1)
	}
}

// run prints the packages in the directories, which may be relative to dir.
func (p printer) run(ctx context.Context, dir string, dirs []string, most int) error {
	for i, d := range dirs {
		// To the go command, a directory without a dot in front is a package of the standard library.
		if _, err := os.Stat(filepath.Join(dir, d)); err == nil && filepath.IsLocal(d) {
			dirs[i] = "./" + d
		}
	}
	set, err := source.Load(ctx, dir, dirs...)
	if err != nil {
		return err
	}
	var tooLarge []error
	for _, pkg := range set.Packages {
		g := knot.Draw(set, pkg)
		knots := g.Knots()
		if err := p.print(pkg, g, knots); err != nil {
			return err
		}
		if most > 0 && len(knots) > 0 && len(knots[0]) > most {
			tooLarge = append(tooLarge, fmt.Errorf("%s: a knot of %d files, more than %d", pkg.ImportPath, len(knots[0]), most))
		}
	}
	return errors.Join(tooLarge...)
}

func (p printer) print(pkg *source.Package, g *knot.Graph, knots [][]int) error {
	code, err := codeLines(pkg)
	if err != nil {
		return err
	}
	arrows, users := 0, make([]int, len(g.Files))
	for file := range g.Files {
		for _, to := range g.Uses(file) {
			arrows++
			users[to]++
		}
	}
	sizes, in := make([]int, len(knots)), make([]int, len(g.Files))
	for k, files := range knots {
		sizes[k] = len(files)
		for _, file := range files {
			in[file] = k + 1
		}
	}
	fmt.Fprintf(p.w, "%s: files %d, code lines %d, arrows %d, knots %s\n", pkg.ImportPath, len(g.Files), sum(code), arrows, plus(sizes))
	if p.quiet {
		return nil
	}
	fmt.Fprintf(p.w, "\n%6s %5s %8s %5s  file\n", "code", "uses", "used by", "knot")
	for file, name := range g.Files {
		fmt.Fprintf(p.w, "%6d %5d %8d %5s  %s\n", code[file], len(g.Uses(file)), users[file], strings.TrimPrefix(fmt.Sprint(in[file]), "0"), name)
	}
	if p.edges {
		p.printArrows(g, in)
	}
	for k, files := range knots {
		p.printKnot(k+1, files, g, code)
	}
	fmt.Fprintln(p.w)
	return nil
}

// printArrows marks the arrows that are part of a knot.
func (p printer) printArrows(g *knot.Graph, in []int) {
	fmt.Fprintln(p.w)
	for from := range g.Files {
		for _, to := range g.Uses(from) {
			mark := ' '
			if in[from] > 0 && in[from] == in[to] {
				mark = '*'
			}
			fmt.Fprintf(p.w, "%c %s\n", mark, arrow(g, from, to))
		}
	}
}

func (p printer) printKnot(number int, files []int, g *knot.Graph, code []int) {
	var names, middles []string
	var lines []int
	for _, file := range files {
		names = append(names, g.Files[file])
		lines = append(lines, code[file])
	}
	fmt.Fprintf(p.w, "\nknot %d: %d files, %d code lines: %s\n", number, len(files), sum(lines), strings.Join(names, " "))
	for _, m := range g.Middles(files) {
		middles = append(middles, fmt.Sprintf("%s (%d left)", g.Files[m.File], m.Left))
	}
	if len(middles) > 0 {
		fmt.Fprintf(p.w, "  middle: %s\n", strings.Join(middles[:min(5, len(middles))], ", "))
	}
	for _, c := range g.Cuts(files, cuts) {
		fmt.Fprintf(p.w, "  cut %s: %s left\n", arrow(g, c.From, c.To), plus(c.Left))
	}
}

func codeLines(pkg *source.Package) ([]int, error) {
	var lines []int
	for _, name := range pkg.GoFiles {
		text, err := os.ReadFile(filepath.Join(pkg.Dir, name))
		if err != nil {
			return nil, err
		}
		_, code := source.Lines(text)
		lines = append(lines, code)
	}
	return lines, nil
}

func arrow(g *knot.Graph, from, to int) string {
	return fmt.Sprintf("%s -> %s (%s)", g.Files[from], g.Files[to], strings.Join(g.Names(from, to), " "))
}

func sum(numbers []int) (all int) {
	for _, n := range numbers {
		all += n
	}
	return all
}

// plus writes the sizes of knots, 3+2.
func plus(sizes []int) string {
	if len(sizes) == 0 {
		return "none"
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(sizes), "[]"), " ", "+")
}
