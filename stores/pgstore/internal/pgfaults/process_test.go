package pgfaults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"example.com/idempotency/internal/guardtest"
)

// This file is about API processes that can be killed: the test program, run once more.

// The environment of an API process: where its database is, which API it is, and how long its leases are.
const (
	processDSN   = "PGFAULTS_DSN"
	processKind  = "PGFAULTS_KIND"
	processLease = "PGFAULTS_LEASE"
)

// serveProcess serves an API, prints its address and ends with its parent.
func serveProcess(dsn string, k kind, leases string) {
	lease, err := time.ParseDuration(leases)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	a, err := newAPI(context.Background(), dsn, k)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	s := http.Server{Handler: a.handler(lease), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A process is a running API process.
type process struct {
	*guardtest.Server
	cmd   *exec.Cmd
	stdin io.Closer
}

func startProcess(dsn string, k kind, lease time.Duration) (*process, error) {
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), processDSN+"="+dsn, processKind+"="+string(k), processLease+"="+lease.String())
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.end()
		return nil, fmt.Errorf("the API process does not start: %w", err)
	}
	p.Server = &guardtest.Server{URL: "http://" + strings.TrimSpace(addr), Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	return p, nil
}

// kill ends the process as SIGKILL does. It does not wait for it.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

func (p *process) end() {
	p.kill()
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}
