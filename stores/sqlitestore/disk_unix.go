//go:build linux || darwin || freebsd

package sqlitestore

import "syscall"

// diskOf returns what the system tells of the disk of a file. It opens nothing: whoever closes the file takes away the locks
// that other stores of the process have on it.
func diskOf(path string) disk {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return disk{}
	}
	const write = 2 // W_OK
	return disk{true, product(st.Blocks, st.Bsize), product(st.Bavail, st.Bsize), syscall.Access(path, write)}
}

// product multiplies figures whose types differ from system to system.
func product[A, B int32 | int64 | uint32 | uint64](n A, size B) int64 { return int64(n) * int64(size) }
