//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package client

import (
	"errors"
	"os"
)

func lockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func unlockFile(f *os.File) error { return f.Close() }
