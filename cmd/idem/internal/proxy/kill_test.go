package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A moment is where in the way of a request a process is killed.
type moment struct {
	name string
	// kill lets a request come to the moment, and kills. The client's answer comes on the channel.
	kill func(l *lane, id string, victim *process, answers <-chan result) error
	// doubt says that nobody can know what has happened: the next try may make a second effect under Rerun, and
	// the key may be held under Hold.
	doubt bool
}

var moments = []moment{
	{"before the service can be reached", func(l *lane, _ string, victim *process, answers <-chan result) error {
		victim.kill()
		got := <-answers
		if victim == l.service && got.Problem.Code != problem.TryLater {
			return fmt.Errorf("a service that is away: %+v", got)
		}
		return l.relay.come()
	}, false},
	{"before the service has a byte", func(l *lane, _ string, victim *process, answers <-chan result) error {
		return l.kill(victim, answers)
	}, true},
	{"while the service works", func(l *lane, _ string, victim *process, answers <-chan result) error {
		pause(rand.N(15 * time.Millisecond)) // somewhere in the work of another process
		victim.kill()
		l.last = <-answers
		return nil
	}, true},
	{"right after the effect", func(l *lane, id string, victim *process, answers <-chan result) error {
		for effects(l.ledger, id) == 0 && l.ctx.Err() == nil {
			pause(time.Millisecond)
		}
		victim.kill()
		l.last = <-answers
		return nil
	}, true},
	{"when the service has answered", func(l *lane, _ string, victim *process, answers <-chan result) error {
		return l.kill(victim, answers)
	}, true},
	{"while the answer is recorded", func(l *lane, _ string, victim *process, answers <-chan result) error {
		<-l.stop.reached
		close(l.stop.goOn)
		pause(rand.N(3 * time.Millisecond)) // somewhere in the work of another process
		victim.kill()
		l.last = <-answers
		return nil
	}, true},
	{"when the client has its answer", func(l *lane, _ string, victim *process, answers <-chan result) error {
		l.last = <-answers
		victim.kill()
		if l.last.Status != http.StatusCreated {
			return fmt.Errorf("no answer without a fault: %+v", l.last)
		}
		return nil
	}, false},
}

// stops say where the relay stops a request for a moment.
var stops = map[string]int{
	"before the service has a byte": toService, "when the service has answered": toProxy, "while the answer is recorded": toProxy,
}

// A result is what a client got, or that it got nothing.
type result struct {
	guardtest.Reply
	err error
}

func resultOf(r guardtest.Reply, err error) result { return result{r, err} }

// A lane is a proxy in front of a service, with requests one after the other.
type lane struct {
	ctx            context.Context
	proxy, service *process
	relay          *relay
	ledger         string
	hold           bool
	stop           *stop
	last           result // of the request that met the kill
	doubled, held  int
}

// kill kills when the bytes of the request are stopped, and loses them.
func (l *lane) kill(victim *process, answers <-chan result) error {
	<-l.stop.reached
	victim.kill()
	l.relay.cut()
	close(l.stop.goOn)
	l.last = <-answers
	return nil
}

// strike sends a charge, kills a process at a moment of it, starts the process again and insists on the charge.
func (l *lane) strike(m moment, ofProxy bool, id string) error {
	victim := l.service
	if ofProxy {
		victim = l.proxy
	}
	l.last, l.stop = result{}, nil
	if way, ok := stops[m.name]; ok {
		l.stop = l.relay.stopNext(way)
	}
	if m.name == moments[0].name {
		l.relay.leave()
	}
	answers := make(chan result, 1)
	addr := l.proxy.address()
	go func() { answers <- resultOf(charge(l.ctx, addr, id)) }()
	if err := m.kill(l, id, victim, answers); err != nil {
		return err
	}
	if err := victim.start(); err != nil {
		return err
	}
	return l.judge(m, id, resultOf(insist(l.ctx, l.proxy, id)))
}

// judge compares what came of a charge with what the guarantee says.
func (l *lane) judge(m moment, id string, got result) error {
	n := effects(l.ledger, id)
	most := 1
	if m.doubt && !l.hold {
		most = 2
	}
	switch {
	case got.err != nil:
		return fmt.Errorf("no answer: %w", got.err)
	case n > most:
		return fmt.Errorf("%d effects, and %d are allowed", n, most)
	case got.Problem.Code == problem.OutcomeUnknown && (!l.hold || !m.doubt):
		return errors.New("the key is held without a reason")
	case got.Problem.Code == problem.OutcomeUnknown:
		l.held++
		return nil
	case n == 0:
		return errors.New("an answer without an effect")
	case l.last.err == nil && l.last.Status == http.StatusCreated && l.last.Body != got.Body:
		return fmt.Errorf("two answers: %q and %q", l.last.Body, got.Body)
	}
	l.doubled += n - 1
	again := resultOf(charge(l.ctx, l.proxy.address(), id))
	if !again.Replayed() || again.Body != got.Body || effects(l.ledger, id) != n {
		return fmt.Errorf("another try got %+v after %+v", again, got)
	}
	return nil
}

// Wherever the proxy or the service is killed, a charge is made once, or as often as recovery allows, and its
// client gets one answer. PROXY_KILLS is how many processes are killed.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	kills := 4 * len(moments)
	if n, err := strconv.Atoi(os.Getenv("PROXY_KILLS")); err == nil {
		kills = n
	}
	for _, storeName := range []string{"sqlite", "redis"} {
		t.Run(storeName, func(t *testing.T) {
			t.Parallel()
			at := "store: {sqlite: " + filepath.Join(t.TempDir(), "records.db") + "}"
			if storeName == "redis" {
				at = "store: {redis: 'redis://" + redistest.Start(t).Addr + "/0'}"
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*guardtest.Patience)
			defer cancel()
			var lanes []*lane
			for i, language := range []string{"node", "python", "node", "python"} {
				recovery := []string{"rerun", "hold"}[i/2]
				ledger := filepath.Join(t.TempDir(), "ledger")
				service := newService(t, language, ledger)
				relay, err := newRelay(service)
				require.NoError(t, err)
				t.Cleanup(relay.leave)
				proxy := newProxy(t, fmt.Sprintf("to: http://%s\nlisten: 127.0.0.1:0\nadmin: 'off'\nlease: 2s\nrecovery: %s\n%s\n", relay.listener.Addr(), recovery, at))
				lanes = append(lanes, &lane{ctx: ctx, proxy: proxy, service: service, relay: relay, ledger: ledger, hold: recovery == "hold"})
			}
			var all sync.WaitGroup
			for i, l := range lanes {
				all.Go(func() {
					for n := i; n < kills/2; n += len(lanes) {
						turn := n / len(lanes)
						m, ofProxy := moments[(turn+i)%len(moments)], (turn/len(moments)+i)%2 == 0
						if err := l.strike(m, ofProxy, fmt.Sprintf("charge-%d-%d", i, n)); err != nil {
							t.Errorf("lane %d, %s, of the proxy %v: %v", i, m.name, ofProxy, err)
							return
						}
					}
				})
			}
			all.Wait()
			for i, l := range lanes {
				t.Logf("lane %d: %d second effects, %d held", i, l.doubled, l.held)
			}
		})
	}
}

// A proxy that is told to end while requests are under way, and started again, loses none and doubles none.
func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger")
	service := newService(t, "node", ledger)
	p := newProxy(t, "to: http://"+service.address()+"\nlisten: 127.0.0.1:0\nadmin: 'off'\nrecovery: hold\nstore: {sqlite: "+filepath.Join(t.TempDir(), "r.db")+"}\n")
	ctx, cancel := context.WithTimeout(t.Context(), guardtest.Patience)
	defer cancel()
	const clients, charges = 8, 20
	replies := make([][]result, clients)
	progress := make(chan bool, clients*charges)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := range charges {
				replies[c] = append(replies[c], resultOf(insist(ctx, p, fmt.Sprintf("load-%d-%d", c, n))))
				progress <- true
			}
		})
	}
	for range 3 {
		for range clients * charges / 4 {
			<-progress
		}
		require.NoError(t, p.end(syscall.SIGTERM))
		require.NoError(t, p.start())
	}
	all.Wait()
	for c := range clients {
		for n, got := range replies[c] {
			require.Equal(t, http.StatusCreated, got.Status, "%+v", got)
			require.Equal(t, 1, effects(ledger, fmt.Sprintf("load-%d-%d", c, n)))
		}
	}
	require.Len(t, slices.Concat(replies...), clients*charges)
}

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
