// Package pgproxy is a proxy that stands between a client and a PostgreSQL server and knows where
// a request and its reply begin and end. It does to one round trip, counted from a chosen moment,
// what a [Fault] says.
package pgproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// patience bounds each wait of the proxy for a server or a client that does not come.
const patience = 10 * time.Second

// A Fault is what happens to one round trip. A zero Fault does no harm.
//
// Before is called before the server gets the request, During when it has executed all of it but
// the end of the transaction, and After when it has answered and the client does not know yet. They
// get the process ID of the backend.
type Fault struct {
	Before, During, After func(pid int)
	// Heard lets the client hear what the server has answered until During.
	Heard bool
	// Between puts During between two statements of a pipeline. Other requests go unharmed.
	Between bool
	// LoseRequest resets the connection of the client instead of delivering the request.
	LoseRequest bool
	// LoseReply resets it instead of delivering the reply.
	LoseReply bool
	// Silent makes the connection silent instead of delivering the reply, until the channel is
	// closed. Then both sides see its end.
	Silent <-chan struct{}
	// Late resets the connection of the client, and delivers the request when the channel is
	// closed. Then the server sees the end of the connection, too.
	Late <-chan struct{}
}

// A Proxy passes connections on to one server. Its methods may be called at any time.
type Proxy struct {
	listener net.Listener
	server   string
	links    sync.WaitGroup
	closed   chan struct{}

	mu    sync.Mutex
	open  map[*link]bool
	trips int // since Arm
	at    int // the trip that fails
	fault Fault
	done  chan struct{} // closed when the fault has happened
	fired bool
}

// New starts a proxy in front of the server at a TCP address.
func New(server string) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, server: server, closed: make(chan struct{}), open: make(map[*link]bool)}
	p.links.Go(p.accept)
	return p, nil
}

// Addr returns where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Arm lets the nth round trip from now on, over all connections, suffer the fault. The first is 1,
// and 0 is none.
func (p *Proxy) Arm(n int, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips, p.at, p.fault, p.fired, p.done = 0, n, f, false, make(chan struct{})
}

// Trips returns the number of round trips since Arm.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Fired reports whether the fault has begun to happen.
func (p *Proxy) Fired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// Done returns a channel that is closed when the fault has happened to its end.
func (p *Proxy) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Close ends all connections and returns when they have ended.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.mu.Lock()
	close(p.closed)
	for l := range p.open {
		l.close(false)
	}
	p.mu.Unlock()
	p.links.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.links.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

// serve passes one connection on until one of its sides ends it.
func (p *Proxy) serve(client *net.TCPConn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn), changed: make(chan struct{}), over: make(chan struct{})}
	if !p.enter(l) {
		l.close(false)
		return
	}
	defer p.leave(l)
	var ways sync.WaitGroup
	ways.Go(l.replies)
	ways.Go(l.requests)
	ways.Wait()
}

func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
	}
	p.open[l] = true
	return true
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
}

// next counts a round trip, and returns its fault and what to close when that has happened.
func (p *Proxy) next(r request) (f Fault, done chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips++
	if p.trips != p.at || p.fault.Between && r.statements() < 2 {
		return Fault{}, nil, false
	}
	p.fired = true
	return p.fault, p.done, true
}
