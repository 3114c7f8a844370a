package simulation

// In a severed world, the connection of a process to the store breaks when a claim has arrived there,
// now and then, and for longer than the claim's lease. Nobody runs under such a claim, and its guard
// cannot give it back before it has lapsed.

// severs decides whether a call is the last of its process for a while.
func (p *simProcess) severs(c *simCall, d simDice) bool {
	w := p.world
	if w.kind != severed || c.op != "claim" || !d.oneIn(6) {
		return false
	}
	away := simWindow{from: w.now(), to: min(w.calm, w.now()+d.between(p.lease, 2*p.lease))}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.weather.outages = append(p.weather.outages, away)
	w.seen[simSevered]++
	return away.to > away.from
}

// outage is the one that keeps the process from the store now.
func (p *simProcess) outage() (simWindow, bool) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	return in(p.weather.outages, w.now())
}
