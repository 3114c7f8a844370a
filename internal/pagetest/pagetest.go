// Package pagetest runs what a page of the documentation shows: programs, and commands with their
// answers.
package pagetest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// patience is how long a program may take to listen.
const patience = time.Minute

// File returns what a file of the repository has.
func File(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Block returns the code block of a page whose first line is ``` with a language and the mark.
func Block(t testing.TB, page, mark string) string {
	t.Helper()
	block := regexp.MustCompile("(?ms)^ *```\\w+ " + regexp.QuoteMeta(mark) + "\n(.*?)```").FindStringSubmatch(page)
	if block == nil {
		t.Fatalf("the page has no block %q", mark)
	}
	return block[1]
}

// FreeAddr returns an address on which nobody listens.
func FreeAddr(t testing.TB) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// Start runs a program and returns when it listens on addr. It ends with the function that is
// returned, and with the test.
func Start(t testing.TB, addr string, command ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, command[0], command[1:]...)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = server.Wait(); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	for deadline := time.Now().Add(patience); ; {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = c.Close()
			return stop
		}
		select {
		case <-ended:
			t.Fatalf("%v has ended", command)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v does not listen", command)
		}
	}
}

// passing is what differs from call to call.
var passing = regexp.MustCompile(`(?m)^Date: .*$|decision [0-9a-f]{32}|((?:began |held \d+ +)\d+[smhd] ago \()?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// Converse runs the commands of a block, those behind "$ ", and compares their answers with those of
// the block. Of a time and of the ID of a decision only the presence counts. The names that a page has for what a test chooses,
// such as an address, stand in pairs with what they are here: name, here, name, here. It returns the
// number of commands.
func Converse(t testing.TB, block string, names ...string) int {
	t.Helper()
	var back []string
	for i := 0; i < len(names); i += 2 {
		back = append(back, names[i+1], names[i])
	}
	turns := strings.Split("\n"+block, "\n$ ")[1:]
	for _, turn := range turns {
		command, want, _ := strings.Cut(turn, "\n")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.NewReplacer(names...).Replace(command)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		got := strings.NewReplacer(back...).Replace(strings.ReplaceAll(string(out), "\r\n", "\n"))
		got, want = passing.ReplaceAllString(strings.TrimSpace(got), "passing"), passing.ReplaceAllString(strings.TrimSpace(want), "passing")
		if got != want {
			t.Errorf("%s\nanswers\n%s\nand the page says\n%s", command, got, want)
		}
	}
	return len(turns)
}

// Need skips the test if a program is not installed. Where all servers are required, it fails.
func Need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("REDIS_REQUIRED") == "1" {
			t.Fatal(err)
		}
		t.Skip(program, "is not installed")
	}
}
