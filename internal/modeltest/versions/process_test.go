package versions_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/modeltest/versions"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

// servers are what all processes share.
type servers struct{ args []string }

func startServers(t *testing.T) servers {
	t.Helper()
	r, pg := redistest.Start(t), pgserver.Shared(t)
	return servers{[]string{"-redis", r.Addr, "-postgres", pg.DSN, "-sqlite", filepath.Join(t.TempDir(), "records")}}
}

// programs returns the program of the earlier version and that of the tree.
func programs(t *testing.T) (earlier, tree string) {
	t.Helper()
	tree = filepath.Join(t.TempDir(), "process")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tree, "./process").CombinedOutput()
	require.NoError(t, err, "%s", out)
	if earlier = os.Getenv("VERSIONS_EARLIER"); earlier == "" {
		earlier = tree
	}
	return earlier, tree
}

// A process is one that runs.
type process struct {
	name, program string
	cmd           *exec.Cmd
	in            io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan versions.Reply
}

func (s servers) run(t *testing.T, name, program string) *process {
	t.Helper()
	p := &process{name: name, program: program, waiting: map[int]chan versions.Reply{}}
	p.cmd = exec.CommandContext(context.Background(), program, s.args...)
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r versions.Reply
			if json.Unmarshal(lines.Bytes(), &r) != nil {
				return
			}
			p.mu.Lock()
			waiting := p.waiting[r.ID]
			delete(p.waiting, r.ID)
			p.mu.Unlock()
			waiting <- r
		}
	}()
	t.Cleanup(func() {
		_ = p.in.Close()
		<-ended
		_ = p.cmd.Wait()
	})
	return p
}

// kill ends the process as a crash does.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// call has a call carried out.
func (p *process) call(t *testing.T, c versions.Call) versions.Reply {
	t.Helper()
	reply := make(chan versions.Reply, 1)
	p.mu.Lock()
	p.last++
	c.ID = p.last
	p.waiting[c.ID] = reply
	text, err := json.Marshal(c)
	if err == nil {
		_, err = p.in.Write(append(text, '\n'))
	}
	p.mu.Unlock()
	require.NoError(t, err)
	select {
	case r := <-reply:
		delete(r.Header, "Idempotency-Ttl") // which goes down
		r.ID = 0
		return r
	case <-time.After(time.Minute):
		require.Fail(t, "no reply", "%s: %+v", p.name, c)
		return versions.Reply{}
	}
}
