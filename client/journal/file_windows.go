package journal

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

// This file has what Windows does for a journal. A file beside it is locked, because an open
// file cannot be replaced there. Nor can one be removed, so that the lock file stays.

const lockBeside = true

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

// lockFile takes the lock of an open file, which one process at a time may have. The system
// releases it when that process ends, however it ends.
func lockFile(f *os.File) error {
	const (
		failImmediately = 1
		exclusive       = 2
		lockViolation   = syscall.Errno(33)
	)
	var at syscall.Overlapped
	ok, _, err := lockFileEx.Call(f.Fd(), failImmediately|exclusive, 0, 1, 0, uintptr(unsafe.Pointer(&at)))
	switch {
	case ok != 0:
		return nil
	case errors.Is(err, lockViolation), errors.Is(err, syscall.ERROR_IO_PENDING):
		return ErrLocked
	default:
		return err
	}
}

// release closes a file, which unlocks it.
func release(f *os.File) error { return f.Close() }

// publish gives a new file its name. The lock beside it keeps others away.
func publish(from, to string) error { return os.Rename(from, to) }

// replace puts a new file in the place of the old one, and returns the one that is there then, or
// nil if it cannot be opened. Both must be closed for that.
func replace(old, next *os.File, from, to string) (*os.File, error) {
	if err := next.Close(); err != nil {
		return old, err
	}
	_ = old.Close()
	err := os.Rename(from, to)
	now, openErr := os.OpenFile(to, os.O_RDWR, 0)
	if openErr != nil {
		return nil, errors.Join(err, openErr)
	}
	return now, err
}

// links returns how many names a file has.
func links(f *os.File) (uint64, error) {
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &info); err != nil {
		return 0, err
	}
	return uint64(info.NumberOfLinks), nil
}

// syncDir does nothing: Windows has no way to sync a directory.
func syncDir(string) error { return nil }
