package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
)

// A moment is where in the way of a request a process is killed.
type moment struct {
	name string
	// kill lets a request come to the moment, and kills. The client's answer comes on the channel.
	kill func(l *lane, id string, victim *process, answers <-chan reply) error
	// doubt says that nobody can know what has happened: the next try may make a second effect under Rerun, and
	// the key may be held under Hold.
	doubt bool
}

var moments = []moment{
	{"before the service can be reached", func(l *lane, _ string, victim *process, answers <-chan reply) error {
		victim.kill()
		got := <-answers
		if victim == l.service && got.code != "try-later" {
			return fmt.Errorf("a service that is away: %+v", got)
		}
		return l.relay.come()
	}, false},
	{"before the service has a byte", func(l *lane, _ string, victim *process, answers <-chan reply) error {
		return l.kill(victim, answers)
	}, true},
	{"while the service works", func(l *lane, _ string, victim *process, answers <-chan reply) error {
		pause(rand.N(15 * time.Millisecond)) // somewhere in the work of another process
		victim.kill()
		l.last = <-answers
		return nil
	}, true},
	{"right after the effect", func(l *lane, id string, victim *process, answers <-chan reply) error {
		for effects(l.ledger, id) == 0 && l.ctx.Err() == nil {
			pause(time.Millisecond)
		}
		victim.kill()
		l.last = <-answers
		return nil
	}, true},
	{"when the service has answered", func(l *lane, _ string, victim *process, answers <-chan reply) error {
		return l.kill(victim, answers)
	}, true},
	{"while the answer is recorded", func(l *lane, _ string, victim *process, answers <-chan reply) error {
		<-l.stop.reached
		close(l.stop.goOn)
		pause(rand.N(3 * time.Millisecond)) // somewhere in the work of another process
		victim.kill()
		l.last = <-answers
		return nil
	}, true},
	{"when the client has its answer", func(l *lane, _ string, victim *process, answers <-chan reply) error {
		l.last = <-answers
		victim.kill()
		if l.last.status != http.StatusCreated {
			return fmt.Errorf("no answer without a fault: %+v", l.last)
		}
		return nil
	}, false},
}

// stops say where the relay stops a request for a moment.
var stops = map[string]int{
	"before the service has a byte": toService, "when the service has answered": toProxy, "while the answer is recorded": toProxy,
}

// A lane is a proxy in front of a service, with requests one after the other.
type lane struct {
	ctx            context.Context
	proxy, service *process
	relay          *relay
	ledger         string
	hold           bool
	stop           *stop
	last           reply // of the request that met the kill
	doubled, held  int
}

// kill kills when the bytes of the request are stopped, and loses them.
func (l *lane) kill(victim *process, answers <-chan reply) error {
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
	l.last, l.stop = reply{}, nil
	if way, ok := stops[m.name]; ok {
		l.stop = l.relay.stopNext(way)
	}
	if m.name == moments[0].name {
		l.relay.leave()
	}
	answers := make(chan reply, 1)
	addr := l.proxy.address()
	go func() { answers <- charge(l.ctx, addr, id) }()
	if err := m.kill(l, id, victim, answers); err != nil {
		return err
	}
	if err := victim.start(); err != nil {
		return err
	}
	got := insist(l.ctx, l.proxy, id)
	return l.judge(m, id, got)
}

// judge compares what came of a charge with what the guarantee says.
func (l *lane) judge(m moment, id string, got reply) error {
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
	case got.code == "outcome-unknown" && (!l.hold || !m.doubt):
		return errors.New("the key is held without a reason")
	case got.code == "outcome-unknown":
		l.held++
		return nil
	case n == 0:
		return errors.New("an answer without an effect")
	case l.last.err == nil && l.last.status == http.StatusCreated && l.last.body != got.body:
		return fmt.Errorf("two answers: %q and %q", l.last.body, got.body)
	}
	l.doubled += n - 1
	again := charge(l.ctx, l.proxy.address(), id)
	if !again.replayed || again.body != got.body || effects(l.ledger, id) != n {
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
	replies := make([][]reply, clients)
	progress := make(chan bool, clients*charges)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := range charges {
				replies[c] = append(replies[c], insist(ctx, p, fmt.Sprintf("load-%d-%d", c, n)))
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
			require.Equal(t, http.StatusCreated, got.status, "%+v", got)
			require.Equal(t, 1, effects(ledger, fmt.Sprintf("load-%d-%d", c, n)))
		}
	}
	require.Len(t, slices.Concat(replies...), clients*charges)
}
