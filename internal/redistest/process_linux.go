package redistest

import (
	"os/exec"
	"syscall"
)

// endWithParent sees to it that a test that is killed leaves no server behind.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
