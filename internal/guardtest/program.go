package guardtest

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Program is a process of its own that serves HTTP. Each request has a connection of its own: Go's client
// repeats a request with a key by itself when a connection that it has used before is cut.
type Program struct {
	*Server
	Cmd    *exec.Cmd
	Stdout *bufio.Reader // what it prints after its address
}

// Itself returns a command that runs this test binary with more variables in its environment. TestMain has to look
// at them, and run what is tested. So the race detector watches the process if it watches the tests.
func Itself(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// StartProgram starts a command and returns when it has printed "listening on" and its address. The end of the test
// kills it.
func StartProgram(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	p := &Program{&Server{Client: client}, cmd, bufio.NewReader(stdout)}
	t.Cleanup(p.Kill)
	for {
		line, err := p.Stdout.ReadString('\n')
		require.NoError(t, err, "the process does not listen")
		if url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on "); ok {
			p.URL = url
			return p
		}
	}
}

// Kill ends the process as kill -9 does, if it has not ended.
func (p *Program) Kill() {
	_ = p.Cmd.Process.Kill()
	_ = p.Cmd.Wait()
}

// Stop asks the process to end, and checks that it does without an error.
func (p *Program) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Cmd.Wait(), "it ends by itself, without an error")
}

// RequireKilled waits until the process has killed itself.
func (p *Program) RequireKilled(t testing.TB) {
	t.Helper()
	_ = p.Cmd.Wait()
	status, ok := p.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signal() == syscall.SIGKILL, "%v", p.Cmd.ProcessState)
}
