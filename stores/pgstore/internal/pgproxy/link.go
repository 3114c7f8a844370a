package pgproxy

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync"
	"time"
)

// A link is one connection through a proxy.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	once           sync.Once
	over           chan struct{} // closed when both sides are

	mu       sync.Mutex
	changed  chan struct{} // closed, and replaced, when something of the following changes
	pid      int           // of the backend
	keeps    bool          // what the server says is kept back
	kept     []byte
	answered int  // statements, since it is kept back
	idle     bool // the server has answered all of a request, since it is kept back
	ended    bool // the server has ended the connection
}

// requests passes on what the client says.
func (l *link) requests() {
	defer l.close(false)
	r := bufio.NewReader(l.client)
	first, err := readStartup(r)
	if err != nil {
		return
	}
	if _, err := l.server.Write(first); err != nil {
		return
	}
	for {
		req, err := readRequest(r)
		if err != nil {
			return
		}
		if req.isTrip() {
			if f, done, ok := l.proxy.next(req); ok {
				goesOn := l.suffer(f, req)
				close(done)
				if !goesOn {
					return
				}
				continue
			}
		}
		if _, err := l.server.Write(req.bytes()); err != nil {
			// The server may have said why it has gone.
			l.await(patience, func() bool { return l.ended })
			return
		}
	}
}

// suffer does to a request what the fault says, and reports whether the connection goes on.
func (l *link) suffer(f Fault, req request) bool {
	if f.Before != nil {
		f.Before(l.backend())
	}
	switch {
	case f.LoseRequest:
		l.close(true)
		return false
	case f.Late != nil:
		l.deliverLate(f.Late, req)
		return false
	case f.During != nil:
		l.interrupt(f, req)
		return true
	}
	l.keep()
	_, _ = l.server.Write(req.bytes())
	l.await(patience, func() bool { return l.idle || l.ended })
	if f.After != nil {
		f.After(l.backend())
	}
	switch {
	case f.LoseReply:
		l.close(true)
		return false
	case f.Silent != nil:
		select {
		case <-f.Silent:
		case <-l.over:
		}
		return false
	}
	l.pass(true)
	return true
}

// deliverLate delivers a request whose client has lost its connection.
func (l *link) deliverLate(when <-chan struct{}, req request) {
	l.keep()
	reset(l.client)
	select {
	case <-when:
	case <-l.over:
	}
	_, _ = l.server.Write(req.bytes())
	l.await(patience, func() bool { return l.idle || l.ended })
}

// interrupt calls During while the server is in the middle of the request.
func (l *link) interrupt(f Fault, req request) {
	first, _ := req.cut(f.Between)
	if req[len(req)-1].kind() == query {
		_, _ = l.server.Write(first.bytes())
		f.During(l.backend())
		return
	}
	l.keep()
	_, _ = l.server.Write(append(first.bytes(), flushMessage...))
	// A statement that takes longer is interrupted.
	l.await(50*time.Millisecond, func() bool { return l.answered >= first.statements() || l.ended })
	l.pass(f.Heard)
	f.During(l.backend())
}

// replies passes on what the server says.
func (l *link) replies() {
	r := bufio.NewReader(l.server)
	for {
		m, err := readMessage(r)
		if err != nil {
			break
		}
		if !l.see(m) {
			continue
		}
		if _, err := l.client.Write(m); err != nil {
			break
		}
	}
	l.change(func() { l.ended = true })
	l.await(patience, func() bool { return !l.keeps })
	l.close(false)
}

// see notes a message of the server, and reports whether it is passed on now.
func (l *link) see(m message) (passes bool) {
	l.change(func() {
		if m.kind() == keyData && len(m) >= 9 {
			l.pid = int(binary.BigEndian.Uint32(m[5:]))
		}
		passes = !l.keeps
		if passes {
			return
		}
		l.kept = append(l.kept, m...)
		switch m.kind() {
		case complete, failed, suspended, emptyStatement:
			l.answered++
		case ready:
			l.idle = true
		}
	})
	return passes
}

// keep begins to keep back what the server says.
func (l *link) keep() {
	l.change(func() { l.keeps, l.kept, l.answered, l.idle = true, nil, 0, false })
}

// pass ends that, and delivers what was kept or forgets it.
func (l *link) pass(delivers bool) {
	l.change(func() {
		if delivers {
			_, _ = l.client.Write(l.kept)
		}
		l.keeps, l.kept = false, nil
	})
}

func (l *link) backend() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pid
}

func (l *link) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until the condition is true, and not for ever.
func (l *link) await(atMost time.Duration, condition func() bool) {
	over := time.NewTimer(atMost)
	defer over.Stop()
	for {
		l.mu.Lock()
		ok, changed := condition(), l.changed
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-l.over:
			return
		case <-over.C:
			return
		}
	}
}

// close closes both sides. A reset drops what is on its way to the client.
func (l *link) close(withReset bool) {
	l.once.Do(func() {
		if withReset {
			reset(l.client)
		}
		_ = l.client.Close()
		_ = l.server.Close()
		close(l.over)
	})
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // closing sends RST
	_ = c.Close()
}
