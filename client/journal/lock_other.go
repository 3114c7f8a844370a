//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package journal

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// This file is for systems where Go's standard library has no file locks.

const lockBeside = true

func lockFile(*os.File) error {
	return fmt.Errorf("journal: no file locks on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func release(f *os.File) error { return f.Close() }

func publish(from, to string) error { return os.Rename(from, to) }

func replace(old, _ *os.File, _, _ string) (*os.File, error) { return old, errors.ErrUnsupported }
