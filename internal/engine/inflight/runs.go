package inflight

import (
	"sync"
	"time"
)

// A Run is the place of a run among the [Runs]. It is a part of what runs, so that it costs no memory of its own.
type Run struct {
	of         any
	started    time.Time
	shard      *shard
	prev, next *Run
}

// Runs are those of a process that are in flight. The zero Runs is ready for use.
type Runs struct{ shards [32]shard }

// A shard is some of the runs, so that not all that begin and end at a time wait for each other.
type shard struct {
	mu    sync.Mutex
	first *Run
	_     [48]byte // fills the cache line, so that shards do not share one
}

// Enter adds a run of which of knows more. random chooses its shard.
func (r *Runs) Enter(run *Run, of any, started time.Time, random byte) {
	s := &r.shards[int(random)%len(r.shards)]
	run.of, run.started, run.shard = of, started, s
	s.mu.Lock()
	defer s.mu.Unlock()
	if run.next = s.first; run.next != nil {
		run.next.prev = run
	}
	s.first = run
}

// Leave removes a run that has ended.
func (r *Run) Leave() {
	r.shard.mu.Lock()
	defer r.shard.mu.Unlock()
	if r.next != nil {
		r.next.prev = r.prev
	}
	if r.prev == nil {
		r.shard.first = r.next
	} else {
		r.prev.next = r.next
	}
	r.prev, r.next = nil, nil // whoever keeps a run that has ended keeps no others
}

// Each tells f of all runs. Others of the same shard neither begin nor end meanwhile, so f is brief.
func (r *Runs) Each(f func(of any, started time.Time)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for run := s.first; run != nil; run = run.next {
			f(run.of, run.started)
		}
		s.mu.Unlock()
	}
}
