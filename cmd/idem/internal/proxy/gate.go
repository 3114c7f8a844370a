package proxy

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// A gate is a connection that knows how often it was written to, that can be closed to further writes, and that tells an answer
// from what a service has sent behind the end of the one before.
//
// net/http puts a connection back before it looks whether bytes are left of an answer: of a 204 with a body, for example.
// The request that takes it in this moment would get them for its answer, and the guard would record that.
type gate struct {
	net.Conn

	mu      sync.Mutex
	writes  int
	closed  bool
	reading bool          // somebody waits for the next byte, so none is left of the last answer
	await   chan struct{} // is closed once somebody does, or once the connection is closed
	silent  bool          // no request is on its way, so the service has nothing to say
	begins  bool          // the answer to the request does, with the next byte
	spent   bool          // behind that answer, which has no body, may come one that is no answer to the next request
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.writes++ // before the write: whoever closes the gate must not miss one that has begun
	}
	if g.silent {
		g.silent, g.begins = false, true
		g.spent = bytes.HasPrefix(p, []byte("HEAD "))
	}
	g.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	return g.Conn.Write(p)
}

func (g *gate) Read(p []byte) (int, error) {
	g.read(true)
	n, err := g.Conn.Read(p)
	if unasked := g.read(false); unasked && n > 0 {
		_ = g.Close()
		return 0, net.ErrClosed
	}
	g.look(p[:n])
	return n, err
}

// look finds out whether an answer has no body that its header tells of.
func (g *gate) look(p []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	const status = len("HTTP/1.1 ")
	if !g.begins || len(p) == 0 {
		return
	}
	if len(p) < status+3 {
		g.begins, g.spent = false, true // nobody knows
		return
	}
	switch code := string(p[status : status+3]); {
	case code[0] == '1':
		return // another follows
	case code == "304":
		g.spent = true
	case code == "204":
		header := bytes.ToLower(p)
		g.spent = bytes.Contains(header, []byte("\ncontent-length:")) || bytes.Contains(header, []byte("\ntransfer-encoding:"))
	}
	g.begins = false
}

// read notes that somebody begins or ends to read, and reports whether the service should be silent.
func (g *gate) read(begins bool) (silent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reading = begins; begins {
		g.tell()
	}
	return g.silent
}

func (g *gate) tell() {
	if g.await != nil {
		close(g.await)
		g.await = nil
	}
}

func (g *gate) Close() error {
	g.mu.Lock()
	g.closed = true
	g.tell()
	g.mu.Unlock()
	return g.Conn.Close()
}

// noRest is how long net/http has to find out that nothing is left of the last answer.
const noRest = time.Second

// next returns when the connection is ready for a request: nothing is left of the last answer. Otherwise it is closed. Until the
// request is written, what is plain text has nothing to say.
func (g *gate) next(plain bool) {
	g.mu.Lock()
	if g.spent {
		g.mu.Unlock()
		_ = g.Close()
		return
	}
	g.silent = plain
	if g.reading || g.closed {
		g.mu.Unlock()
		return
	}
	await := make(chan struct{})
	g.await = await
	g.mu.Unlock()
	limit := time.NewTimer(noRest)
	defer limit.Stop()
	select {
	case <-await:
	case <-limit.C:
		_ = g.Close()
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes
}

// closeIf closes the gate to writes if it was written to n times, and reports whether it was.
func (g *gate) closeIf(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = g.closed || g.writes == n
	return g.writes == n
}
