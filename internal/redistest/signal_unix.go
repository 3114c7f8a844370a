//go:build unix

package redistest

import "syscall"

const (
	signalStop     = syscall.SIGSTOP
	signalContinue = syscall.SIGCONT
)
