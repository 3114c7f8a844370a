package bench_test

import (
	"net/http"
	"runtime"
	"strconv"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/load"
)

// liveRows are requests to a memory store that has many records, against the same
// requests to one that has a thousand. What differs is the caches of the processor.
func liveRows(work load.Work, live int) []*row {
	few, many := liveStore(work, 1000), liveStore(work, live)
	var rows []*row
	for _, r := range []*row{
		{name: "replay", prepare: few.replays},
		{name: "replay, " + strconv.Itoa(live) + " live keys", prepare: many.replays},
		{name: "first run", prepare: few.firstRuns},
		{name: "first run, " + strconv.Itoa(live) + " live keys", prepare: many.firstRuns},
	} {
		r.size, r.workers = batchSize(work), 1
		rows = append(rows, r)
	}
	rows[1].floor, rows[3].floor = rows[0], rows[2]
	return rows
}

// A liveRecords is a store that has records already, which are made when they are needed
// for the first time.
type liveRecords struct {
	work load.Work
	n    int

	full  bool
	kept  http.Handler
	churn http.Handler // on the same store; its records are gone as soon as more come
	sent  int
}

func liveStore(work load.Work, n int) *liveRecords {
	store := idempotency.NewMemoryStore(idempotency.WithMaxEntries(2*n + 1000))
	g, err := idempotency.New(store, idempotency.SharedScope)
	if err != nil {
		panic(err)
	}
	return &liveRecords{
		work: work, n: n,
		kept: g.Handler(work), churn: g.With(idempotency.WithTTL(time.Millisecond)).Handler(work),
	}
}

func (s *liveRecords) fill(c *load.Caller) {
	if s.full {
		return
	}
	s.full = true
	for i := range s.n {
		c.Send(s.kept, liveKey(i))
	}
	runtime.GC()
}

func (s *liveRecords) replays(_, n int) []func(int) bool {
	c := load.NewCaller(s.work)
	s.fill(c)
	s.sent += n
	from := s.sent
	return []func(int) bool{func(i int) bool {
		// All over the store: the next record is not the next in memory.
		status := c.Send(s.kept, liveKey((from+i)*7919%s.n))
		return status == http.StatusCreated && c.Answer.Header().Get("Idempotent-Replayed") != ""
	}}
}

func (s *liveRecords) firstRuns(_, n int) []func(int) bool {
	c, keys := load.NewCaller(s.work), load.Keys(n)
	s.fill(c)
	return []func(int) bool{func(i int) bool {
		return c.Send(s.churn, keys[i]) == http.StatusCreated && c.Answer.Header().Get("Idempotent-Replayed") == ""
	}}
}

// liveKey makes a key when it is sent: one that comes from a network is in the caches too.
func liveKey(i int) string { return "live-" + strconv.Itoa(i) }
