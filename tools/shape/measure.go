package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"example.com/idempotency/tools/internal/knot"
	"example.com/idempotency/tools/internal/source"
)

// The measures, and whether a limit may be a little higher than what is measured: lines change
// with every commit, and numbers of things seldom.
var measures = map[string]struct{ slack bool }{
	"knot":    {},            // of a package: the files of its largest knot
	"files":   {},            // of a folder: its Go files without tests
	"names":   {},            // of a package: the lines of go doc -short
	"folders": {},            // of the repository: its top folders without those that begin with a dot
	"code":    {slack: true}, // of a folder: the code lines of its files without tests
	"longest": {slack: true}, // of a folder: the most code lines of one such file
	"lines":   {slack: true}, // of a Go file: all its lines
	"product": {slack: true}, // of the repository: the code lines of released modules without tests and kits
	"tests":   {slack: true}, // of the repository: the code lines of _test.go files, in percent of the product
}

// A figure is what a measure has come to for one thing.
type figure struct {
	measure, of string
	value       int
}

// measure takes all measures. Those that need a program are taken only where a rule asks.
func measure(ctx context.Context, t *tree, set *source.Set, rules *limits) ([]figure, error) {
	figures := []figure{{"folders", ".", len(t.folders)}}
	for _, p := range set.Packages {
		largest := 0
		if knots := knot.Draw(set, p).Knots(); len(knots) > 0 {
			largest = len(knots[0])
		}
		figures = append(figures, figure{"knot", t.name(p.Dir), largest})
	}
	figures = append(figures, sizes(t, rules.kits)...)
	for _, dir := range rules.named("names") {
		cmd := exec.CommandContext(ctx, "go", "doc", "-short", ".")
		cmd.Dir = filepath.Join(t.root, dir)
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go doc of %s: %w", dir, err)
		}
		figures = append(figures, figure{"names", dir, bytes.Count(out, []byte("\n"))})
	}
	slices.SortFunc(figures, func(a, b figure) int {
		return cmp.Or(strings.Compare(a.measure, b.measure), strings.Compare(a.of, b.of))
	})
	return figures, nil
}

// sizes takes the measures of files and folders.
func sizes(t *tree, kits []pattern) []figure {
	var figures []figure
	product, tests := 0, 0
	files, code, longest := map[string]int{}, map[string]int{}, map[string]int{}
	for _, f := range t.files {
		figures = append(figures, figure{"lines", f.name, f.lines})
		if f.test {
			tests += f.code
		} else {
			if t.product(f.dir, kits) {
				product += f.code
			}
			files[f.dir]++
			code[f.dir] += f.code
			longest[f.dir] = max(longest[f.dir], f.code)
		}
	}
	for dir := range files {
		figures = append(figures, figure{"files", dir, files[dir]}, figure{"code", dir, code[dir]}, figure{"longest", dir, longest[dir]})
	}
	return append(figures, figure{"product", ".", product}, figure{"tests", ".", 100 * tests / max(product, 1)})
}
