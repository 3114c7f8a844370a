package console

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is the screen of the store: how fast and how full it is, in which forms it keeps records, and what this process is
// busy with.

func (v *visit) process(s *idempotency.Stats) inspect.Process {
	p := inspect.Process{
		Running: s.Running, Waiting: s.Waiting, Pending: s.Pending, PendingBytes: s.PendingBytes, GivingBack: s.GivingBack, Abandoned: s.Abandoned,
	}
	if len(s.Oldest) > 0 {
		p.OldestRun = int64(v.now().Sub(s.Oldest[0].Started) / time.Second)
	}
	return p
}

// A storePage is what the screen shows.
type storePage struct {
	inspect.Store
	Finds bool // the store finds records by their tenant
	Form  form
}

// mostCounted is how many records of the index are counted. The name notThere is no record's.
const (
	mostCounted = 1000
	notThere    = "console-asks-for-a-record-that-is-not-there"
)

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// since returns for how many milliseconds something has taken.
func (v *visit) since(began time.Time) float64 { return milliseconds(v.now().Sub(began)) }

func (v *visit) showStore(string) error {
	stats := v.guard.Stats()
	p := inspect.Store{Type: "store", Store: strings.TrimPrefix(fmt.Sprintf("%T", v.store), "*"), Stats: v.process(&stats), Versions: versions()}
	began := v.now()
	page, err := v.lister.List(v.r.Context(), store.Query{Holding: true, Limit: mostCounted})
	if err != nil {
		return err
	}
	p.Answered, p.Counted = v.since(began), began.UTC().Format(time.RFC3339)
	for _, e := range page.Entries {
		switch e.Record.State {
		case store.Held:
			p.Held++
		case store.Claimed:
			p.InFlight++
		}
	}
	began = v.now()
	if _, err := v.inspector.Get(v.r.Context(), notThere); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	p.Call, p.Timeout = v.since(began), milliseconds(inspect.TimeoutOf(v.guard))
	health := v.told.healthOf(v.r.Context(), v.store, v.now())
	p.More, p.Says, p.Health, p.Check = page.Next != "", health.sentence(&stats), health.word, health.why
	p.Usage, p.Forms = v.told.usageOf(v.r.Context(), v.store, v.now()), inspect.FormsOf(v.store)
	p.Birth, _ = inspect.BirthOf(v.r.Context(), v.guard) // an error is what it says
	if counter, ok := v.store.(interface{ Len() int }); ok {
		n := counter.Len()
		p.Records = &n
	}
	return v.show(http.StatusOK, "store", "Store", storePage{Store: p, Finds: v.finds()}, p)
}

const module = "example.com/idempotency"

// versions are those of this library in the program, and of Go.
func versions() map[string]string {
	found := map[string]string{"go": runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module || strings.HasPrefix(m.Path, module+"/") {
			found[m.Path] = m.Version
		}
	}
	return found
}
