package otelidempotency

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/idempotency/event"
)

// This file makes the attributes of metrics, once for each combination.

// The attributes of metrics.
const (
	keyResult    = "idempotency.result"
	keyOutcome   = "idempotency.outcome"
	keyRerun     = "idempotency.rerun"
	keyScope     = "idempotency.scope"
	keyIncident  = "idempotency.incident"
	keyCause     = "idempotency.cause"
	keyOperation = "idempotency.operation"
	keyAction    = "idempotency.action"
	keyState     = "idempotency.state"
	keyVerdict   = "idempotency.client.verdict"
	keyReason    = "idempotency.client.reason"
	keyRoute     = "http.route"
	keyMethod    = "http.request.method"
)

// other stands for a value that is not one of a bounded set. The semantic conventions call an
// unknown method so.
const other = "_OTHER"

// maxCombinations bounds the combinations of attributes that are told apart. The SDK gives up
// at the same number, but for each instrument, and by dropping all attributes.
const maxCombinations = 2000

// labels are the values of a measurement's attributes. Empty ones are left out.
type labels struct {
	name, value          string // of the attribute that is the instrument's own
	route, method, scope string
	cause                event.Cause
	rerun                rerun
}

// rerun is an attribute that is true, false or left out.
type rerun int8

const (
	firstRun rerun = iota + 1
	laterRun
)

func (l labels) set() attribute.Set {
	var all []attribute.KeyValue
	text := func(name, value string) {
		if value != "" {
			all = append(all, attribute.String(name, value))
		}
	}
	text(l.name, l.value)
	text(keyRoute, l.route)
	text(keyMethod, l.method)
	text(keyScope, l.scope)
	text(keyCause, string(l.cause))
	if l.rerun != 0 {
		all = append(all, attribute.Bool(keyRerun, l.rerun == laterRun))
	}
	return attribute.NewSet(all...)
}

// bounded returns the labels without what the program or its clients choose.
func (l labels) bounded() labels {
	for _, s := range []*string{&l.route, &l.scope} {
		if *s != "" {
			*s = other
		}
	}
	return l
}

// A measurement is what an instrument wants to be given: the attributes, in slices that are
// made once.
type measurement struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

// measurements remembers the attributes of each combination. A lookup takes no lock and no
// memory; the map is copied when a combination comes up for the first time.
type measurements struct {
	made atomic.Pointer[map[labels]*measurement]
	mu   sync.Mutex
}

func (m *measurements) of(l labels) *measurement {
	if known := m.made.Load(); known != nil {
		if found := (*known)[l]; found != nil {
			return found
		}
	}
	return m.learn(l)
}

func (m *measurements) learn(l labels) *measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	var known map[labels]*measurement
	if p := m.made.Load(); p != nil {
		known = *p
	}
	if len(known) >= maxCombinations {
		l = l.bounded()
	}
	if found := known[l]; found != nil {
		return found
	}
	option := metric.WithAttributeSet(l.set())
	made := &measurement{[]metric.AddOption{option}, []metric.RecordOption{option}, []metric.ObserveOption{option}}
	known = maps.Clone(known)
	if known == nil {
		known = make(map[labels]*measurement)
	}
	known[l] = made
	m.made.Store(&known)
	return made
}

// methodOf returns a method of the semantic conventions. Do has none.
func methodOf(method string) string {
	switch method {
	case "", http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete, http.MethodGet,
		http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace, "QUERY":
		return method
	}
	return other
}

// routeOf returns the route without the method that a pattern of http.ServeMux begins with:
// that is an attribute of its own.
func routeOf(route string) string {
	method, path, found := strings.Cut(route, " ")
	if found && method == methodOf(method) {
		return strings.TrimLeft(path, " \t")
	}
	return route
}
