//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package journal

import (
	"errors"
	"os"
	"syscall"
)

// This file has what Unix systems with flock do for a journal. The file itself is locked, so
// that no other name of it and no removed lock file lets a second process in.

const lockBeside = false

// lockFile takes the lock of an open file, which one process at a time may have. The kernel
// releases it when that process ends, however it ends.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}

// release unlocks and closes a file. Closing it is not enough: a child process that is being
// started at this moment has it open too, until it becomes another program.
func release(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// publish gives a new file its name, unless another file has it.
func publish(from, to string) error { return os.Link(from, to) }

// replace puts a new file in the place of the old one, and returns the one that is there then. The
// new one is locked before anybody can open it by that name.
func replace(old, next *os.File, from, to string) (*os.File, error) {
	if err := lockFile(next); err != nil {
		return old, err
	}
	if err := os.Rename(from, to); err != nil {
		return old, err
	}
	return next, nil
}
