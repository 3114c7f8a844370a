package simulation

import (
	"context"
	"time"
)

// The store of a distant world is healthy and far away, and a process has a few connections to it. A call that
// waits for one until its caller gives up has waited in vain. A call that is given up on a connection breaks it, and
// a new one takes as long as several calls. As long as there are faults, that may be more than there is time for.
const (
	distantLeast, distantMost = 50 * time.Millisecond, 600 * time.Millisecond
	distantInCalm             = 200 * time.Millisecond
	distantConnections        = 2
	tripsToConnect            = 3
)

// travel makes a call on the connection of its process, unless its caller gives up before.
func (p *simProcess) travel(ctx context.Context, d simDice, deliver func()) bool {
	w := p.world
	if w.kind != distant || ctx.Err() != nil { // what comes late was sent before
		deliver()
		return true
	}
	select {
	case p.connections <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-p.connections }()
	way := d.between(distantLeast, distantMost)
	if w.now() >= w.calm {
		way = d.between(distantLeast, distantInCalm)
	}
	time.Sleep(way)
	made := d.oneIn(2) || ctx.Err() == nil
	if made {
		deliver()
	}
	if ctx.Err() != nil {
		time.Sleep(tripsToConnect * way)
	}
	return made
}
