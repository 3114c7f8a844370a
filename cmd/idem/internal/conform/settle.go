package conform

import (
	"fmt"
	"slices"
	"time"
)

// This file says when effects are counted, and whose they are. Some servers make them after their answer. An
// effect that shows the number of its request is that request's, whenever it comes. Any other one belongs to the
// requests that were sent last, so nothing new is sent before all have come.

// ceaseless is why nothing is said of effects if they cannot be told apart.
const ceaseless = "effects came too late, or all the time: nobody can tell which request made them"

// mark notes how many effects there were since the beginning.
func (t *trial) mark() { t.markAfter(t.wait()) }

// watchedMark waits as long as an effect may take to come: it finds out how late the effects of a server are.
func (t *trial) watchedMark() { t.markAfter(t.lab.cfg.Late) }

// firstMark waits for the first effect, if there is none yet.
func (t *trial) firstMark() {
	if t.mark(); t.marks[0] == 0 && t.late() {
		t.marks = nil
		t.watchedMark()
	}
}

func (t *trial) markAfter(quiet time.Duration) {
	n := -1
	if t.untried == "" && !t.plain && t.lab.noEffects == "" {
		if now, ok := t.rest(quiet); ok && now >= t.start {
			n = now - t.start
		}
	}
	t.marks = append(t.marks, n)
}

// late reports whether an effect may come late: an ID is in the answer, or never seen.
func (t *trial) late() bool { return t.lab.noEffects == "" && t.lab.cfg.Effects.ID == "" }

// wait is for how long effects must not have changed before they are counted.
func (t *trial) wait() time.Duration {
	if t.patient {
		return t.lab.cfg.Late
	}
	return min(t.lab.late+t.lab.late/2, t.lab.cfg.Late)
}

// rest returns the number of effects once it has not changed for a while, and no request was sent meanwhile.
func (t *trial) rest(quiet time.Duration) (int, bool) {
	l := t.lab
	n, ok := t.count()
	if !t.late() {
		return n, ok
	}
	since, begin := l.acted, time.Now()
	for ok && time.Since(since) < quiet {
		if time.Since(begin) > 10*quiet {
			l.noEffects = ceaseless
			return 0, false
		}
		if t.stop(sleep(l.ctx, min(quiet-time.Since(since), quiet/8+time.Millisecond))) {
			return 0, false
		}
		var now int
		if now, ok = t.count(); now != n {
			n, since = now, time.Now()
			l.late = max(l.late, since.Sub(l.acted))
		}
	}
	return n, ok
}

// count returns what the source of effects shows of the trial.
func (t *trial) count() (int, bool) {
	l := t.lab
	if source := &l.cfg.Effects; source.ID != "" {
		seen := map[string]bool{}
		for _, a := range t.answers {
			if v, ok := point([]byte(a.body), source.ID); ok && a.ok() {
				seen[fmt.Sprint(v)] = true
			}
		}
		return len(seen), !t.blind
	}
	c, ok := t.tally()
	if !ok {
		return 0, false
	}
	own := c.of(t.before, l.unique)
	if own > 0 && !l.attributed {
		l.attributed, t.start = true, 0
	}
	if l.attributed {
		return own, true
	}
	return c.n, true
}

// tally asks the source of effects.
func (t *trial) tally() (tally, bool) {
	source := &t.lab.cfg.Effects
	switch {
	case source.Sink != "":
		return t.lab.sink.tally(), true
	case source.URL == "" || t.stop(t.lab.wire.take(t.lab.ctx, 1)):
		return tally{}, false
	}
	a := t.lab.wire.send(t.lab.ctx, shot{method: "GET", url: source.URL, keep: maxAnswer}, "")
	v, ok := point([]byte(a.body), source.Pointer)
	if !ok || !a.ok() {
		return tally{}, false
	}
	return number(v)
}

// outgrown waits as long as an effect may be late, and reports whether one has come that its trial has not counted.
func (l *lab) outgrown() bool {
	look := &trial{lab: l, before: l.order[0].before}
	look.rest(l.cfg.Late)
	c, ok := look.tally()
	if !l.attributed {
		return ok && l.known >= 0 && c.n > l.known
	}
	return ok && slices.ContainsFunc(l.order, func(t *trial) bool {
		return !t.plain && t.untried == "" && c.of(t.before, t.after) > t.ended
	})
}

// run makes the trial.
func (t *trial) run() {
	l := t.lab
	known := l.known
	l.known = -1
	t.begin()
	if known >= 0 && t.start > known && !t.plain && !l.attributed && l.late == 0 {
		l.strayed = true
	}
	t.make()
	t.after = l.unique
	if !t.plain && t.untried == "" && t.late() {
		if n, ok := t.rest(t.wait()); ok {
			t.ended, l.known = n, n
		}
	}
}
