package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"example.com/idempotency/tools/internal/source"
)

// A tree is what git has of the repository, and would have after git add. Names are relative to
// the root and have slashes; the directory of the root is called ".".
type tree struct {
	root     string // absolute, without symbolic links
	folders  []string
	files    []goFile
	modules  []string
	released map[string]bool // by module
}

// A goFile is a Go source file, for any platform.
type goFile struct {
	name, dir   string
	lines, code int
	test        bool
}

func readTree(ctx context.Context, root string) (*tree, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if absolute, err = filepath.EvalSymlinks(absolute); err != nil {
		return nil, err
	}
	t := &tree{root: absolute, released: map[string]bool{}}
	text, err := os.ReadFile(filepath.Join(root, "modules.txt"))
	if err != nil {
		return nil, err
	}
	err = eachLine(string(text), func(_ int, words []string) error {
		if len(words) != 2 {
			return fmt.Errorf("%q are not a directory, and yes or no", words)
		}
		t.modules = append(t.modules, words[0])
		t.released[words[0]] = words[1] == "yes"
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("modules.txt:%w", err)
	}
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(string(bytes.TrimRight(out, "\x00")), "\x00") {
		if err := t.add(name); err != nil {
			return nil, err
		}
	}
	slices.Sort(t.folders)
	t.folders = slices.Compact(t.folders)
	return t, nil
}

func (t *tree) add(name string) error {
	text, err := []byte(nil), error(nil)
	if path.Ext(name) == ".go" {
		text, err = os.ReadFile(filepath.Join(t.root, name))
	} else {
		_, err = os.Lstat(filepath.Join(t.root, name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // git has not heard yet that it is deleted
	}
	if err != nil {
		return err
	}
	if folder, _, ok := strings.Cut(name, "/"); ok && !strings.HasPrefix(name, ".") {
		t.folders = append(t.folders, folder)
	}
	if path.Ext(name) == ".go" {
		f := goFile{name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
		f.lines, f.code = source.Lines(text)
		t.files = append(t.files, f)
	}
	return nil
}

// name returns what a path on this machine is called in the tree.
func (t *tree) name(absolute string) string {
	name, err := filepath.Rel(t.root, absolute)
	if err != nil {
		return absolute
	}
	return filepath.ToSlash(name)
}

// product tells whether a folder is part of what users link: in a module that is released, and
// not a kit.
func (t *tree) product(dir string, kits []pattern) bool {
	module := slices.MaxFunc(t.modules, func(a, b string) int { return within(dir, a) - within(dir, b) })
	return t.released[module] && !slices.ContainsFunc(kits, func(kit pattern) bool { return kit.matches(dir) })
}

// within tells how deep a module is in which a directory is; -1 if it is not in there.
func within(dir, module string) int {
	switch {
	case module == ".":
		return 0
	case dir == module || strings.HasPrefix(dir, module+"/"):
		return len(module)
	}
	return -1
}

// staleKits names the patterns of kits that match no package.
func (t *tree) staleKits(kits []pattern) (problems []string) {
	for _, kit := range kits {
		if !slices.ContainsFunc(t.files, func(f goFile) bool { return kit.matches(f.dir) }) {
			problems = append(problems, fmt.Sprintf("%s: there is no kit in %s: remove the line", limitsFile, kit.text))
		}
	}
	return problems
}
