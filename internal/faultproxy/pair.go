package faultproxy

import (
	"net"
	"sync"
	"time"
)

// A pair is the two halves of one connection through a proxy.
type pair struct {
	proxy          *Proxy
	client, server *net.TCPConn

	// Guarded by the proxy's mutex.
	reply   Fault // what becomes of the next thing that the server sends
	cut     bool  // the client has got its half of a reply, and gets no more
	damaged bool  // something on it has disappeared

	once  sync.Once
	ended chan struct{}
}

// pump passes on what comes in one direction.
func (c *pair) pump(way Direction, from, to *net.TCPConn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !c.pass(way, buf[:n], to) {
			c.end(true)
			return
		}
		if err != nil {
			// The other direction may still have something to say.
			_ = to.CloseWrite()
			return
		}
	}
}

// pass sends b on, or does to it what the proxy was told. It tells whether the
// connection is still to be used.
func (c *pair) pass(way Direction, b []byte, to *net.TCPConn) bool {
	if way == ToServer {
		if fault := c.proxy.suffer(b); fault == LoseRequest {
			return false
		} else if fault != 0 {
			c.set(fault)
		}
	}
	delay, fault, lost := c.fate(way, len(b))
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-c.ended:
			return false
		}
	}
	switch {
	case lost:
		return true
	case fault == LoseReply:
		return false
	case fault == CutReply:
		// Not by a reset, which may overtake the half that is still on its way.
		_, _ = to.Write(b[:len(b)/2])
		_ = to.CloseWrite()
		return true
	}
	_, err := to.Write(b)
	return err == nil
}

// set remembers what is to become of the server's next words.
func (c *pair) set(fault Fault) {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.reply = fault
}

// fate returns what happens to n bytes that are on their way now.
func (c *pair) fate(way Direction, n int) (delay time.Duration, fault Fault, lost bool) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	delay = p.delay[way]
	if p.rate > 0 {
		delay += time.Duration(n) * time.Second / time.Duration(p.rate)
	}
	if way == ToClient {
		fault = c.reply
	}
	lost = p.hole[way] || fault == HangReply || c.cut
	c.damaged = c.damaged || lost
	c.cut = c.cut || fault == CutReply
	return delay, fault, lost
}

// end closes both halves: with a reset, which drops what is still on its way, or in
// order.
func (c *pair) end(reset bool) {
	c.once.Do(func() {
		close(c.ended)
		for _, half := range []*net.TCPConn{c.client, c.server} {
			if half == nil {
				continue
			}
			if reset {
				_ = half.SetLinger(0) // closing sends RST
			}
			_ = half.Close()
		}
	})
}
