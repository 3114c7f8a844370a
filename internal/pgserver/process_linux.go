package pgserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// servant returns the user who runs the server if root runs the tests, because a server refuses to
// be run by root.
func servant() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("pgserver: there is no user to run a server")
}

// giveAway gives a directory to the user who runs the server.
func giveAway(dir string) error {
	u, err := servant()
	if err != nil || u == nil {
		return err
	}
	return os.Chown(dir, int(u.Uid), int(u.Gid))
}

// command returns a command that the right user runs, and that ends with the test program.
func command(path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.SysProcAttr.Credential, _ = servant() // giveAway has reported the error
	cmd.Dir = "/"
	return cmd
}
