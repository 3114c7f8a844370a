package proxy

import (
	"net"
	"sync"
)

// A relay is the network between a proxy and its service. It can stop a request, or an answer, on its way.
type relay struct {
	service *process

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	stop     *stop
}

// The two ways through a relay.
const (
	toService = iota
	toProxy
)

// A stop is where the next bytes of a way wait.
type stop struct {
	way     int
	reached chan struct{}
	goOn    chan struct{}
}

func newRelay(service *process) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{service: service, listener: l, conns: map[net.Conn]bool{}}
	go r.accept(l)
	return r, nil
}

func (r *relay) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", r.service.address())
		if err != nil {
			_ = c.Close()
			continue
		}
		r.mu.Lock()
		r.conns[c], r.conns[s] = true, true
		r.mu.Unlock()
		go r.pump(c, s, toService)
		go r.pump(s, c, toProxy)
	}
}

func (r *relay) pump(from, to net.Conn, way int) {
	defer func() {
		_, _ = from.Close(), to.Close()
		r.mu.Lock()
		delete(r.conns, from)
		delete(r.conns, to)
		r.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		s := r.stop
		if s != nil && s.way == way {
			r.stop = nil
		} else {
			s = nil
		}
		r.mu.Unlock()
		if s != nil {
			close(s.reached)
			<-s.goOn
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// stopNext stops the next bytes of a way until goOn is closed.
func (r *relay) stopNext(way int) *stop {
	s := &stop{way, make(chan struct{}), make(chan struct{})}
	r.mu.Lock()
	r.stop = s
	r.mu.Unlock()
	return s
}

// cut breaks all connections: nothing that is on its way arrives.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop = nil
	for c := range r.conns {
		_ = c.Close()
	}
}

// leave makes the address one where nobody listens, and come ends that.
func (r *relay) leave() { _ = r.listener.Close(); r.cut() }

func (r *relay) come() error {
	l, err := net.Listen("tcp", r.listener.Addr().String())
	if err != nil {
		return err
	}
	r.listener = l
	go r.accept(l)
	return nil
}
