// Package faultproxy is a proxy that stands between a client and a server and misbehaves on
// demand, as networks do by chance. It loses exactly the reply of a message that the server has
// executed, silences one direction, delays, and resets.
//
// It does not know the protocol. A message is the data that one read from the client returns.
// For requests of a few kilobytes on a loopback connection that is the whole request, or the
// whole pipeline of requests.
package faultproxy

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// A Fault is what becomes of one message from the client.
type Fault int

// The faults of [Proxy.Fail].
const (
	// LoseRequest resets the connection. The server sees nothing of the message.
	LoseRequest Fault = iota + 1
	// LoseReply delivers the message, waits until the server answers, drops the answer
	// and resets the connection: the server has done it, the client cannot know.
	LoseReply
	// HangReply is LoseReply without the reset: the connection stays open, and nothing
	// of what the server sends on it arrives any more.
	HangReply
	// CutReply delivers the message, and only the first half of what the server sends
	// first in answer, after which the client sees the end of the connection.
	CutReply
)

// A Direction is one of the two ways through the proxy.
type Direction int

// The directions of [Proxy.Hole] and [Proxy.Delay].
const (
	ToServer Direction = iota
	ToClient
)

// A Proxy passes TCP connections on to one server. Its methods may be called at any time
// and by several goroutines.
type Proxy struct {
	listener net.Listener
	server   string
	pumps    sync.WaitGroup

	mu      sync.Mutex
	pairs   map[*pair]bool
	rules   []*rule
	fired   int
	refuses bool
	hole    [2]bool
	delay   [2]time.Duration
	rate    int // bytes in a second, or 0
}

// A rule is a fault and the messages that it waits for.
type rule struct {
	fault Fault
	left  int // negative: without end
	match func(message []byte) bool
}

// New starts a proxy in front of the server at a TCP address. Clients connect to
// [Proxy.Addr]. It ends with the test, and the connections through it with it.
func New(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, server: server, pairs: make(map[*pair]bool)}
	p.pumps.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Refuse() // what is accepted at this moment is not passed on
		p.pumps.Wait()
	})
	return p
}

// Addr returns where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Fail lets the next n messages from clients for which match is true suffer a fault, or
// all of them until [Proxy.Heal] if n is negative. A nil match is true for every message.
// match must neither keep the message nor call the proxy, and is called by one goroutine
// at a time. Of several
// faults that wait for the same message it suffers the one that was set first.
func (p *Proxy) Fail(fault Fault, n int, match func(message []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &rule{fault, n, match})
}

// Fired returns the number of messages that have suffered a fault of [Proxy.Fail].
func (p *Proxy) Fired() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// Open returns the number of connections that pass through the proxy now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Hole makes everything disappear that is on its way in one direction, without a sign to
// either side, as behind a router that has forgotten the connection.
func (p *Proxy) Hole(way Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hole[way] = true
}

// Delay keeps everything in one direction back for d before it is passed on.
func (p *Proxy) Delay(way Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[way] = d
}

// Throttle lets so many bytes pass in a second, on each connection and in each direction: a network
// that is healthy, and too slow for large messages. Zero lifts the limit.
func (p *Proxy) Throttle(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerSecond
}

// Refuse resets all connections and every one that is made until [Proxy.Heal].
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuses = true
	p.mu.Unlock()
	p.Reset()
}

// Reset resets all connections of this moment. New ones work.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.end(true)
	}
}

// Heal takes all faults back that wait, and lets what comes from now on pass. What has
// disappeared does not come back: a connection that has lost something in a hole or by
// [HangReply] is reset.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.refuses, p.hole, p.delay, p.rate = nil, false, [2]bool{}, [2]time.Duration{}, 0
	for c := range p.pairs {
		c.reply = 0
		if c.damaged {
			c.end(true)
		}
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.pumps.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// serve passes one connection on until one of its sides ends it.
func (p *Proxy) serve(client *net.TCPConn) {
	c := &pair{proxy: p, client: client, ended: make(chan struct{})}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.server)
	if err != nil {
		c.end(true)
		return
	}
	c.server = server.(*net.TCPConn)
	if !p.enter(c) {
		c.end(true)
		return
	}
	defer p.leave(c)
	var ways sync.WaitGroup
	ways.Go(func() { c.pump(ToServer, c.client, c.server) })
	ways.Go(func() { c.pump(ToClient, c.server, c.client) })
	ways.Wait()
	c.end(false)
}

// enter makes c one of the open connections, and tells whether it may be one.
func (p *Proxy) enter(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses {
		return false
	}
	p.pairs[c] = true
	return true
}

func (p *Proxy) leave(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, c)
}

// suffer returns the fault of a message from the client, or 0.
func (p *Proxy) suffer(message []byte) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.left == 0 || r.match != nil && !r.match(message) {
			continue
		}
		r.left--
		p.fired++
		return r.fault
	}
	return 0
}
