//go:build !linux

package redistest

import "os/exec"

// endWithParent needs an ability that only Linux has; elsewhere a test that is killed may
// leave a server behind.
func endWithParent(*exec.Cmd) {}
