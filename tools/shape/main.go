// Command shape holds the repository to its shape: how many files use each other in circles, how
// large files and packages are, which package imports which, and that doc links lead somewhere.
//
//	go run ./tools/shape           print each measure with its limit, and check everything
//	go run ./tools/shape -lower    the same, and write lower limits where they are too high
//
// Run it in the root of the repository. The rules are in limits.txt and imports.txt, beside this
// file, and their heads say how to read and change them. A limit that is higher than what is
// measured fails, too. So the commit that makes something smaller lowers the limit, and the room
// is not taken up again. The command exits with status 1 if anything is wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"example.com/idempotency/tools/internal/source"
)

// Where the rules are, below the root.
const (
	limitsFile  = "tools/shape/limits.txt"
	importsFile = "tools/shape/imports.txt"
)

func main() {
	lower := flag.Bool("lower", false, "write lower limits into "+limitsFile+" where they are too high")
	flag.Parse()
	problems, err := run(context.Background(), ".", os.Stdout, *lower)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, "shape:", problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// run prints the table of measures, and returns what is wrong with the repository.
func run(ctx context.Context, root string, w io.Writer, lower bool) (problems []string, err error) {
	limitsText, rules, err := readRules(root, limitsFile, parseLimits)
	if err != nil {
		return nil, err
	}
	_, imports, err := readRules(root, importsFile, parseImports)
	if err != nil {
		return nil, err
	}
	tree, err := readTree(ctx, root)
	if err != nil {
		return nil, err
	}
	set, err := source.Load(ctx, root, "work")
	if err != nil {
		return nil, err
	}
	figures, err := measure(ctx, tree, set, rules)
	if err != nil {
		return nil, err
	}
	verdict := rules.judge(figures)
	if lower && len(verdict.lower) > 0 {
		text := lowered(limitsText, verdict.lower)
		if err := os.WriteFile(filepath.Join(root, limitsFile), []byte(text), 0o644); err != nil { //nolint:gosec // as git has it
			return nil, err
		}
		if rules, err = parseLimits(text); err != nil {
			return nil, err
		}
		verdict = rules.judge(figures)
	}
	if _, err := io.WriteString(w, verdict.table); err != nil {
		return nil, err
	}
	problems = append(problems, verdict.problems...)
	problems = append(problems, tree.staleKits(rules.kits)...)
	problems = append(problems, imports.check(tree, set, rules.kits)...)
	problems = append(problems, checkDocLinks(tree, set)...)
	return problems, nil
}

func readRules[T any](root, file string, parse func(text string) (T, error)) (text string, rules T, err error) {
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return "", rules, err
	}
	if rules, err = parse(string(content)); err != nil {
		return "", rules, fmt.Errorf("%s:%w", file, err)
	}
	return string(content), rules, nil
}

// eachLine calls a function with the number and the words of each line that is neither blank nor
// a comment. Its error gets the number.
func eachLine(text string, do func(line int, words []string) error) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
			if err := do(number, words); err != nil {
				return fmt.Errorf("%d: %w", number, err)
			}
		}
	}
	return nil
}
