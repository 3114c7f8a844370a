package sqlitestore_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/sqlitestore"
)

// This file starts other processes, which are this binary again. Such a process plays one of the
// parts. It is told what to do line by line, and answers each line with one.

// partVariable names the part that a process plays.
const partVariable = "SQLITESTORE_PART"

// parts are what a process can be. A part returns what to do with a line.
var parts = map[string]func(ctx context.Context) func(line []byte) (any, error){
	"neighbour": neighbour,
	"claimer":   claimer,
	"victim":    victim,
	"hoarder":   hoarder,
}

func TestMain(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		play(parts[part](context.Background()))
		return
	}
	os.Exit(guardtest.Main(m))
}

// oneCommit returns the options of a store that has the option, or none.
func oneCommit(with bool) []sqlitestore.Option {
	if !with {
		return nil
	}
	return []sqlitestore.Option{sqlitestore.WithOneCommit()}
}

// A reply is what a process answers.
type reply struct {
	Value json.RawMessage
	Error string
}

func play(part func(line []byte) (any, error)) {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // its test is over
		}
		var r reply
		value, err := part(line)
		if err == nil {
			r.Value, err = json.Marshal(value)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return
		}
	}
}

// A process is another process.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// start starts a process that ends with the test at the latest.
func start(t testing.TB, part string, env ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), partVariable+"="+part), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd, in, json.NewDecoder(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return p
}

// tell sends the process something to do, as JSON. Its answer is waited for by hear.
func (p *process) tell(t testing.TB, what any) {
	t.Helper()
	require.NoError(t, json.NewEncoder(p.in).Encode(what))
}

// hear waits for the answer of a process.
func (p *process) hear(into any) error {
	var r reply
	if err := p.out.Decode(&r); err != nil {
		return fmt.Errorf("the process is gone: %w", err)
	}
	if r.Error != "" {
		return fmt.Errorf("the process: %s", r.Error)
	}
	return json.Unmarshal(r.Value, into)
}
