package faultproxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/faultproxy"
)

const patience = 20 * time.Second

// A server answers each line with "done " and the line, and remembers what it has got.
type server struct {
	addr string

	mu  sync.Mutex
	got []string
}

func start(t *testing.T) *server {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{addr: l.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	return s
}

func (s *server) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			_, _ = io.WriteString(c, "bye\n")
			return
		}
		s.mu.Lock()
		s.got = append(s.got, strings.TrimSpace(line))
		s.mu.Unlock()
		_, _ = io.WriteString(c, "done "+line)
	}
}

// executed returns the lines that have arrived so far.
func (s *server) executed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.got...)
}

// A client speaks to the server line by line.
type client struct {
	*net.TCPConn
	in *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := tryDial(t, addr)
	require.NoError(t, err)
	return c
}

func tryDial(t *testing.T, addr string) (*client, error) {
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c.(*net.TCPConn), bufio.NewReader(c)}, nil
}

// requireRefused makes a connection and sees it die, at once or when it is used.
func requireRefused(t *testing.T, addr string) {
	t.Helper()
	c, err := tryDial(t, addr)
	if err == nil {
		_, err = c.say("anybody there?", patience)
	}
	require.Error(t, err)
}

// say sends a line and returns what comes back until d has passed.
func (c *client) say(line string, d time.Duration) (string, error) {
	_ = c.SetDeadline(time.Now().Add(d))
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	answer, err := c.in.ReadString('\n')
	return strings.TrimSpace(answer), err
}

func (c *client) requireAnswer(t *testing.T, line string) {
	t.Helper()
	answer, err := c.say(line, patience)
	require.NoError(t, err)
	require.Equal(t, "done "+line, answer)
}

func requireReset(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func requireSilence(t *testing.T, err error) {
	t.Helper()
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "%v", err)
}

func containing(text string) func([]byte) bool {
	return func(message []byte) bool { return bytes.Contains(message, []byte(text)) }
}

func TestFaults(t *testing.T) {
	const brief = 50 * time.Millisecond
	tests := map[string]struct {
		fault    faultproxy.Fault
		answer   string
		check    func(*testing.T, error)
		executed []string
	}{
		"LoseRequest": {faultproxy.LoseRequest, "", requireReset, []string{"before"}},
		"LoseReply":   {faultproxy.LoseReply, "", requireReset, []string{"before", "hit"}},
		"HangReply":   {faultproxy.HangReply, "", requireSilence, []string{"before", "hit"}},
		"CutReply": {faultproxy.CutReply, "done", func(t *testing.T, err error) {
			require.ErrorIs(t, err, io.EOF)
		}, []string{"before", "hit"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			p := faultproxy.New(t, s.addr)
			p.Fail(test.fault, 1, containing("hit"))

			c := dial(t, p.Addr())
			c.requireAnswer(t, "before")
			require.Zero(t, p.Fired())
			wait := patience
			if test.fault == faultproxy.HangReply {
				wait = brief
			}
			answer, err := c.say("hit", wait)
			test.check(t, err)
			require.Equal(t, test.answer, answer)
			require.Equal(t, 1, p.Fired())
			require.Eventually(t, func() bool {
				return fmt.Sprint(s.executed()) == fmt.Sprint(test.executed)
			}, patience, time.Millisecond)

			// Once is once: other connections work, and this one does not come back.
			dial(t, p.Addr()).requireAnswer(t, "hit")
			_, err = c.say("after", brief)
			require.Error(t, err)
		})
	}
}

func TestFaultsWithoutEnd(t *testing.T) {
	s := start(t)
	p := faultproxy.New(t, s.addr)
	p.Fail(faultproxy.LoseReply, -1, nil)
	for range 3 {
		_, err := dial(t, p.Addr()).say("a", patience)
		requireReset(t, err)
	}
	require.Equal(t, 3, p.Fired())
	require.Len(t, s.executed(), 3)

	p.Heal()
	dial(t, p.Addr()).requireAnswer(t, "b")
	require.Equal(t, 3, p.Fired())
}

func TestFirstFaultFirst(t *testing.T) {
	s := start(t)
	p := faultproxy.New(t, s.addr)
	p.Fail(faultproxy.LoseRequest, 1, nil)
	p.Fail(faultproxy.LoseReply, 1, nil)
	for range 2 {
		_, err := dial(t, p.Addr()).say("a", patience)
		requireReset(t, err)
	}
	require.Equal(t, []string{"a"}, s.executed(), "the second of them")
	dial(t, p.Addr()).requireAnswer(t, "b")
}

func TestHoles(t *testing.T) {
	tests := map[string]struct {
		way      faultproxy.Direction
		executed []string
	}{
		"to the server": {faultproxy.ToServer, []string{"before"}},
		"to the client": {faultproxy.ToClient, []string{"before", "into the hole"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			p := faultproxy.New(t, s.addr)
			c, idle := dial(t, p.Addr()), dial(t, p.Addr())
			c.requireAnswer(t, "before")
			p.Hole(test.way)
			_, err := c.say("into the hole", 100*time.Millisecond)
			requireSilence(t, err)
			require.Equal(t, test.executed, s.executed())

			p.Heal()
			_, err = c.say("after", patience)
			require.Error(t, err)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it is reset, not silent")
			idle.requireAnswer(t, "a connection that lost nothing goes on")
		})
	}
}

func TestDelay(t *testing.T) {
	const delay = 100 * time.Millisecond
	for _, way := range []faultproxy.Direction{faultproxy.ToServer, faultproxy.ToClient} {
		p := faultproxy.New(t, start(t).addr)
		c := dial(t, p.Addr())
		p.Delay(way, delay)
		begin := time.Now()
		c.requireAnswer(t, "slow")
		require.GreaterOrEqual(t, time.Since(begin), delay)

		p.Delay(way, time.Hour)
		_, err := c.say("a", 50*time.Millisecond)
		requireSilence(t, err)
		p.Reset() // also ends what waits in here
		_, err = c.say("b", patience)
		require.Error(t, err)
	}
}

func TestThrottle(t *testing.T) {
	p := faultproxy.New(t, start(t).addr)
	c := dial(t, p.Addr())
	p.Throttle(1000)
	long := strings.Repeat("x", 100)
	begin := time.Now()
	c.requireAnswer(t, long)
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond) // there and back

	p.Throttle(1)
	_, err := c.say("a", 50*time.Millisecond)
	requireSilence(t, err)
}

func TestRefuse(t *testing.T) {
	s := start(t)
	p := faultproxy.New(t, s.addr)
	open := dial(t, p.Addr())
	open.requireAnswer(t, "a")
	p.Refuse()
	_, err := open.say("b", patience)
	require.Error(t, err)
	requireRefused(t, p.Addr())
	require.Equal(t, []string{"a"}, s.executed())

	p.Heal()
	dial(t, p.Addr()).requireAnswer(t, "d")
}

func TestReset(t *testing.T) {
	p := faultproxy.New(t, start(t).addr)
	c := dial(t, p.Addr())
	c.requireAnswer(t, "a")
	p.Reset()
	_, err := c.in.ReadString('\n')
	requireReset(t, err)
	dial(t, p.Addr()).requireAnswer(t, "b")
}

func TestOrderlyEnd(t *testing.T) {
	p := faultproxy.New(t, start(t).addr)
	c := dial(t, p.Addr())
	c.requireAnswer(t, "a")
	require.NoError(t, c.CloseWrite())
	rest, err := io.ReadAll(c.in)
	require.NoError(t, err)
	require.Equal(t, "bye\n", string(rest), "what the server still has to say arrives")
}

func TestServerGone(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	requireRefused(t, faultproxy.New(t, addr).Addr())
}
