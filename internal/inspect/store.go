package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/store"
)

// This file is what is told of a store: how full it is, and the forms of what it keeps.

// A Usage is how much a store takes of what it may.
type Usage struct {
	At      string   `json:"at" jsonschema:"when that was so"`
	Error   string   `json:"error,omitempty" jsonschema:"why the store does not tell"`
	Figures []Figure `json:"figures"`
}

// A Figure is one of them.
type Figure struct {
	Name  string `json:"name"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit,omitempty" jsonschema:"absent if there is none, or it is not known"`
	Bytes bool   `json:"bytes" jsonschema:"both are bytes"`
}

// FiguresOf returns what is told of the figures of a store.
func FiguresOf(all []store.Figure) []Figure {
	told := make([]Figure, len(all))
	for i, f := range all {
		told[i] = Figure(f)
	}
	return told
}

// String tells it without its name.
func (f Figure) String() string {
	amount := func(n int64) string { return strconv.FormatInt(n, 10) }
	if f.Bytes {
		amount = Size
	}
	if f.Limit == 0 {
		return amount(f.Used)
	}
	return amount(f.Used) + " of " + amount(f.Limit)
}

// Size tells a number of bytes.
func Size(n int64) string {
	unit, units := 0, []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	size := float64(n)
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// A Form is a stored form.
type Form struct {
	Name   string `json:"name"`
	Writes []int  `json:"writes" jsonschema:"the versions that this program writes"`
	Reads  []int  `json:"reads" jsonschema:"the versions that this program reads"`
}

// FormsOf returns the forms that a program writes and reads which keeps its records in a store.
func FormsOf(st store.Store) (all []Form) {
	forms := engine.Forms()
	if g, ok := st.(store.Gauge); ok {
		forms = append(g.Forms(), forms...)
	}
	for _, f := range forms {
		all = append(all, Form(f))
	}
	return all
}

// Versions lists versions for people: those that follow each other as a range.
func Versions(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		end := i
		for end+1 < len(all) && all[end+1] == all[end]+1 {
			end++
		}
		part := strconv.Itoa(all[i])
		if end > i {
			part += "–" + strconv.Itoa(all[end])
		}
		parts, i = append(parts, part), end+1
	}
	return strings.Join(parts, ", ")
}

// Kept counts in how many records each version of each form was found.
type Kept map[engine.FormVersion]int

// Add counts what a record has.
func (k Kept) Add(rec *store.Record) {
	for _, f := range engine.FormsOf(rec) {
		k[f]++
	}
}

// Count counts a record whose form has a version.
func (k Kept) Count(form string, version int) { k[engine.FormVersion{Form: form, Version: version}]++ }

// Says tells what was found, and of which versions this program does not read what it is to read of a store.
func (k Kept) Says(forms []Form) (found string, unread []string) {
	var parts []string
	for _, f := range forms {
		var versions []int
		for v := range k {
			if v.Form == f.Name {
				versions = append(versions, v.Version)
			}
		}
		slices.Sort(versions)
		for _, v := range versions {
			if !slices.Contains(f.Reads, v) {
				unread = append(unread, fmt.Sprintf("%s %d in %d records", f.Name, v, k[engine.FormVersion{Form: f.Name, Version: v}]))
			}
		}
		if len(versions) > 0 {
			parts = append(parts, f.Name+" "+Versions(versions))
		}
	}
	return strings.Join(parts, ", "), unread
}

// TimeoutOf returns how long a guard waits for a call of its store with a small value. It is 0 where calls return at once.
func TimeoutOf(g *idempotency.Guard) time.Duration { return g.Hook().Engine().CallTimeout() }
