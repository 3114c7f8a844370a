package inspect

import (
	"context"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// This file finds records without their key.

// What records are found by.
const (
	ByReference = intent.ByReference
	ByTenant    = "tenant"
	ByTrace     = "trace"
	ByOperation = "operation"
	ByID        = "id" // a trace or an operation
)

// A Finder finds records of a store with the secret of each of its guards.
type Finder []*engine.Engine

// FinderOf returns a finder with the secrets of guards, and of those that were made from the same by With.
func FinderOf(guards ...*idempotency.Guard) Finder {
	var engines []*engine.Engine
	for _, g := range guards {
		engines = append(engines, g.Hook().Engine())
	}
	return engine.Finders(engines...)
}

// Page returns the next records that have a reference or are of a tenant, and fit the query: first those that one secret
// finds, then those of the next one.
func (f Finder) Page(ctx context.Context, by, value string, q store.Query) (page store.Page, err error) {
	number, rest, _ := strings.Cut(q.Cursor, ".")
	n, err := strconv.Atoi(number)
	switch {
	case q.Cursor == "":
		n = 0
	case err != nil || n < 0 || n >= len(f):
		return page, store.ErrBadCursor
	}
	if by == ByTenant {
		by = intent.ByScope
	}
	q.Cursor = rest
	found, next, err := f[n].Find(ctx, by, value, q)
	for _, one := range found {
		page.Entries = append(page.Entries, store.Entry{Key: one.Key.Name(), Record: one.Record})
	}
	switch {
	case next != "":
		page.Next = strconv.Itoa(n) + "." + next
	case n+1 < len(f):
		page.Next = strconv.Itoa(n+1) + "."
	}
	return page, err
}

// ScopeNamed returns the scope that an operator names: \0 at its beginning stands for a zero byte.
func ScopeNamed(text string) string {
	if rest, ok := strings.CutPrefix(text, `\0`); ok {
		return "\x00" + rest
	}
	return text
}

// traces are what a trace may be named by: its ID, or a traceparent.
var traces = regexp.MustCompile(`^(?:00-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?$`)

// Walked returns what tells the records that a trace, an operation ID, or either ([ByID]) stands for, and false if the text
// is none. No store has an index of them.
func Walked(by, text string) (is func(idempotency.RecordInfo) bool, ok bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	trace, isTrace := TraceOf(text)
	isTrace = isTrace && by != ByOperation
	isOperation := operations.MatchString(text) && by != ByTrace
	return func(i idempotency.RecordInfo) bool { return isTrace && Ran(i, trace) || isOperation && i.ID == text }, isTrace || isOperation
}

// operations are the IDs of operations.
var operations = regexp.MustCompile(`^[0-9a-f]{32}$`)

// TraceOf returns the trace that a text names: by its ID, or as a traceparent.
func TraceOf(text string) (id [16]byte, ok bool) {
	m := traces.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if m == nil {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(m[1]))
	return id, err == nil && id != [16]byte{}
}

// Ran reports whether a run of a record belongs to a trace.
func Ran(i idempotency.RecordInfo, trace [16]byte) bool {
	for _, run := range i.Runs {
		if run.Trace.TraceID == trace {
			return true
		}
	}
	return i.Trace.TraceID == trace
}
