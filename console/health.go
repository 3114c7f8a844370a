package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file is about how the store does, by what it says of itself and by what this process waits for.

const (
	// askedEach is how old an answer of the store may be, and askedFor is for how long it is waited for.
	askedEach = 5 * time.Second
	askedFor  = time.Second
)

// A health is what a store says of itself.
type health struct {
	word string // well, unwell or unknown
	says string // a sentence with what it finds wrong, or why it does not say
	why  string // the same without the sentence
}

// healthOf returns what a store has said that finds faults in itself, or could not be asked.
func healthOf(faults []error, err error) health {
	if err != nil {
		return health{"unknown", "The store answers, and does not say how it does: " + plain(err) + ".", plain(err)}
	}
	if len(faults) == 0 {
		return health{word: "well"}
	}
	texts := make([]string, len(faults))
	for i, fault := range faults {
		texts[i] = plain(cmp.Or(fault, errNoWord))
	}
	all := strings.Join(texts, "; ")
	return health{"unwell", "The store is not well: " + all + ".", all}
}

// errNoWord stands for a fault that a store has, and does not name.
var errNoWord = errors.New("it does not say why")

var places = strings.NewReplacer("idempotency: ", "", "redis: ", "", "pgstore: ", "", "sqlitestore: ", "")

// plain returns an error without the places that it comes from.
func plain(err error) string {
	return places.Replace(err.Error())
}

// sentence says how the store does, which has just answered.
func (h health) sentence(s *idempotency.Stats) string {
	var late []string
	for _, c := range []struct {
		n    int
		what string
	}{{s.Pending, "ended runs that are not recorded yet"}, {s.Abandoned, "calls that it has not returned from"}} {
		if c.n > 0 {
			late = append(late, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	says := h.says
	if says == "" {
		says = "The store answers."
		if h.word == "well" && late == nil {
			says = "The store is well."
		}
	}
	if late != nil {
		says += " It is behind with this process: " + strings.Join(late, ", ") + "."
	}
	if s.GivingBack > 0 {
		says += fmt.Sprintf(" Claims that had no reply and may still arrive: %d. They are given back then, and nothing has run under them.", s.GivingBack)
	}
	return says
}

// A measure is how full a store says that it is.
type measure struct {
	figures []store.Figure
	err     error
}

// An asked remembers for a while what the store has said of itself, so that many visitors do not ask it more often.
type asked[T any] struct {
	mu   sync.Mutex
	at   time.Time
	last T
}

// A told is what a store has told of itself.
type told struct {
	gate   gate
	health asked[health]
	usage  asked[measure]
}

// healthOf returns what a store says of itself by its method Health.
func (t *told) healthOf(ctx context.Context, st store.Store, now time.Time) health {
	teller, ok := st.(interface {
		Health(context.Context) ([]error, error)
	})
	if !ok {
		return health{word: "unknown"}
	}
	said, _ := t.health.of(ctx, now, func(ctx context.Context) health { return healthOf(inTime(ctx, &t.gate, teller.Health)) })
	return said
}

// usageOf returns how full a store says that it is, or nil if it cannot be asked.
func (t *told) usageOf(ctx context.Context, st store.Store, now time.Time) *inspect.Usage {
	gauge, ok := st.(store.Gauge)
	if !ok {
		return nil
	}
	said, at := t.usage.of(ctx, now, func(ctx context.Context) measure {
		figures, err := inTime(ctx, &t.gate, gauge.Usage)
		return measure{figures, err}
	})
	u := &inspect.Usage{At: at.UTC().Format(time.RFC3339), Figures: inspect.FiguresOf(said.figures)}
	if said.err != nil {
		u.Error = plain(said.err)
	}
	return u
}

// of returns what was asked, and when. A visitor who leaves does not make it unknown for others.
func (a *asked[T]) of(ctx context.Context, now time.Time, ask func(context.Context) T) (T, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at.IsZero() || now.Sub(a.at) >= askedEach {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askedFor)
		defer cancel()
		a.last, a.at = ask(ctx), now
	}
	return a.last, a.at
}
