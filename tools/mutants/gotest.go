package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// testMain is the name for the failure of a package whose tests have all passed. Its TestMain
// chose the exit status, or it crashed between two tests.
const testMain = "TestMain"

// A report is the result of one run of go test.
type report struct {
	broken   bool // something did not compile
	timedOut bool
	failed   bool
	tests    map[string]string // last action by name: pass, fail, skip, run, cont or pause
	output   string
}

// goTest runs go test in root. overlay, if there is one, is a file for -overlay.
func goTest(ctx context.Context, root, overlay, pattern string, timeout time.Duration, args []string) (*report, error) {
	line := []string{
		"test", "-json", "-count=1", "-vet=off", "-timeout=" + timeout.String(), "-run=" + pattern,
		"-gcflags=-N -l", // takes half the time to compile
	}
	if overlay != "" {
		line = append(line, "-overlay="+overlay)
	}
	// The time-out of go test begins with the test. Compiling may take a while too.
	ctx, cancel := context.WithTimeout(ctx, timeout+10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(line, args...)...)
	cmd.Dir = root
	// The tests with real servers and the slow ones kill mutants too.
	cmd.Env = append(os.Environ(), "REDIS_REQUIRED=1", "REDIS_EXHAUSTIVE=1", "SIMULATION_EXHAUSTIVE=1", "SOAK=5s")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	r := readReport(&stdout)
	r.output += stderr.String()
	if err != nil && !r.failed {
		return nil, errors.New("go test: " + strings.TrimSpace(r.output))
	}
	return r, nil
}

// readReport reads the output of go test -json.
func readReport(in io.Reader) *report {
	r := &report{tests: map[string]string{}}
	var said strings.Builder
	begun := map[string][]string{} // tests, by package
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		var event struct{ Action, Package, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			said.Write(line)
		}
		switch event.Action {
		case "output", "build-output":
			said.WriteString(event.Output)
			r.timedOut = r.timedOut || strings.HasPrefix(event.Output, "panic: test timed out after ")
		case "build-fail":
			r.broken, r.failed = true, true
		case "run", "pause", "cont", "pass", "skip", "fail":
			switch {
			case event.Test == "" && event.Action == "fail":
				r.failed = true
				r.endPackage(begun[event.Package])
			case event.Test != "":
				r.tests[event.Test] = event.Action
				if event.Action == "run" {
					begun[event.Package] = append(begun[event.Package], event.Test)
				}
			}
		}
		if err != nil {
			r.output = said.String()
			return r
		}
	}
}

// endPackage records the failure of a package and of the tests that it had begun. If it
// crashed or was stopped, running tests have no result of their own.
func (r *report) endPackage(begun []string) {
	explained := false
	for _, name := range begun {
		if action := r.tests[name]; action == "run" || action == "cont" {
			r.tests[name] = "fail"
		}
		explained = explained || r.tests[name] == "fail"
	}
	if !explained {
		r.tests[testMain] = "fail"
	}
}

// dead returns the tests that failed. It leaves out a test if only a subtest of it failed.
func (r *report) dead() []string {
	var dead []string
	names := slices.Sorted(maps.Keys(r.tests))
	for _, name := range names {
		hasDead := slices.ContainsFunc(names, func(sub string) bool {
			return strings.HasPrefix(sub, name+"/") && r.tests[sub] == "fail"
		})
		if r.tests[name] == "fail" && !hasDead {
			dead = append(dead, name)
		}
	}
	return dead
}
