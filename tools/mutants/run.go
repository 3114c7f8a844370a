package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A runner tries mutants on the tree at root. It never changes the tree: the compiler gets
// changed copies of the files.
type runner struct {
	root     string
	parallel int           // how many at a time
	timeout  time.Duration // of a mutant's tests, unless it is known to hang
	verbose  bool
	out      io.Writer
}

// run tries the mutants and prints a line for each. It fails if a test that must fail does not
// fail, or does not pass on the unchanged tree.
func (r *runner) run(ctx context.Context, mutants []*mutant) error {
	start := time.Now()
	if err := r.baseline(ctx, mutants); err != nil {
		return fmt.Errorf("without any mutant: %w", err)
	}
	r.line("passes", "no mutant", time.Since(start), "")
	bad := 0
	for trial := range r.trials(ctx, mutants) {
		if ctx.Err() != nil {
			continue // nothing is known of those that were stopped
		}
		verdict, detail := judge(trial.m, trial.report, trial.err)
		r.line(verdict, trial.m.name, trial.took, detail)
		if verdict != killed {
			bad++
		}
		if trial.report != nil && (r.verbose || verdict != killed) {
			r.explain(trial.report)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintf(r.out, "%d of %d mutants killed in %.0fs\n", len(mutants)-bad, len(mutants), time.Since(start).Seconds())
	if bad > 0 {
		return fmt.Errorf("%d mutants are not killed by the tests that must die", bad)
	}
	return nil
}

func (r *runner) line(verdict, name string, took time.Duration, detail string) {
	line := fmt.Sprintf("%-9s %-38s %6.1fs  %s", verdict, name, took.Seconds(), detail)
	fmt.Fprintln(r.out, strings.TrimRight(line, " "))
}

// A trial is the result of trying a mutant.
type trial struct {
	m      *mutant
	report *report
	err    error
	took   time.Duration
}

// trials tries the mutants, several at a time, and yields the trials in the order in which
// they end.
func (r *runner) trials(ctx context.Context, mutants []*mutant) <-chan trial {
	next := make(chan *mutant, len(mutants))
	for _, m := range mutants {
		next <- m
	}
	close(next)
	ended := make(chan trial)
	var workers sync.WaitGroup
	for range max(1, r.parallel) {
		workers.Go(func() {
			for m := range next {
				start := time.Now()
				rep, err := r.try(ctx, m)
				ended <- trial{m, rep, err, time.Since(start)}
			}
		})
	}
	go func() {
		workers.Wait()
		close(ended)
	}()
	return ended
}

// baseline runs the tests of all mutants on the unchanged tree. A test that fails or skips
// there would prove nothing with a mutant.
func (r *runner) baseline(ctx context.Context, mutants []*mutant) error {
	type job struct {
		patterns, dies []string
		args           []string
	}
	jobs := map[string]*job{}
	var order []*job
	for _, m := range mutants {
		key := strings.Join(m.test, " ")
		j := jobs[key]
		if j == nil {
			j = &job{args: m.test}
			jobs[key] = j
			order = append(order, j)
		}
		j.patterns = append(j.patterns, m.pattern())
		j.dies = append(j.dies, m.dies...)
	}
	for _, j := range order {
		slices.Sort(j.patterns)
		rep, err := goTest(ctx, r.root, "", strings.Join(slices.Compact(j.patterns), "|"), 5*r.timeout, j.args)
		switch {
		case err != nil:
			return err
		case rep.failed:
			return fmt.Errorf("go test %s fails:\n%s", strings.Join(j.args, " "), rep.output)
		}
		for _, name := range j.dies {
			if action := rep.tests[name]; action != "pass" && name != testMain {
				return fmt.Errorf("%s does not pass in go test %s, but has the state %q", name, strings.Join(j.args, " "), action)
			}
		}
	}
	return nil
}

// try runs the tests of one mutant.
func (r *runner) try(ctx context.Context, m *mutant) (*report, error) {
	files, err := m.apply(r.root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := writeOverlay(dir, r.root, files)
	if err != nil {
		return nil, err
	}
	timeout := r.timeout
	if m.hangs > 0 {
		timeout = m.hangs
	}
	return goTest(ctx, r.root, overlay, m.pattern(), timeout, m.test)
}

// writeOverlay writes the files into dir, and what go test -overlay needs to find them.
func writeOverlay(dir, root string, files map[string]string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		// The name ends as before, because the go command and the compiler look at its end.
		there := filepath.Join(dir, fmt.Sprint(len(replace)), filepath.Base(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(there), 0o700), os.WriteFile(there, []byte(text), 0o600)); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = there
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// killed is the only good verdict.
const killed = "killed"

// judge returns the verdict on a trial.
func judge(m *mutant, rep *report, err error) (verdict, detail string) {
	if err != nil {
		return "error", err.Error()
	}
	dead := rep.dead()
	var alive []string
	for _, name := range m.dies {
		if rep.tests[name] != "fail" {
			alive = append(alive, name)
		}
	}
	switch {
	case rep.broken:
		return "broken", "it does not compile"
	case rep.timedOut && m.hangs == 0:
		return "hangs", "and the table does not say so"
	case !rep.failed:
		return "SURVIVES", m.guards
	case len(m.dies) == 0:
		return "unnamed", "dies " + strings.Join(dead, " ")
	case len(alive) > 0:
		return "SURVIVES", strings.Join(alive, " ") + "; dead are " + strings.Join(dead, " ")
	}
	const shown = 3
	detail = strings.Join(dead[:min(shown, len(dead))], " ")
	if more := len(dead) - shown; more > 0 {
		detail += fmt.Sprintf(" and %d more", more)
	}
	return killed, detail
}

// explain prints the output of the tests. Unless the user asks for all of it, it leaves out the
// stacks of a crash and the names of tests that start and end.
func (r *runner) explain(rep *report) {
	const most = 40 // lines
	said, _, _ := strings.Cut(rep.output, "\ngoroutine ")
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(said), "\n"), func(line string) bool {
		line = strings.TrimSpace(line)
		return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- PASS")
	})
	lines = lines[max(0, len(lines)-most):]
	if r.verbose {
		lines = strings.Split(rep.output, "\n")
	}
	fmt.Fprintf(r.out, "\t%s\n", strings.Join(lines, "\n\t"))
}
