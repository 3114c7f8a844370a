// Package oldest keeps some of the records of a store in the order in which they were entered.
package oldest

import (
	"slices"
	"sort"
)

// An Index is a list of records, oldest first, which is read from any moment on. The zero Index
// is empty.
//
// Records are known by the numbers of their slots. A record that leaves stays in the list until
// half of the list has left, so that neither entering nor leaving searches the list. Nothing in
// it has a pointer for the garbage collector to follow.
type Index struct {
	entered map[int32]int64 // when each record was entered
	order   []Entry         // also those that have left
	last    int64
}

// An Entry is a record in the list. No two entries of an Index have the same moment.
type Entry struct {
	At   int64
	Slot int32
}

const (
	// fewEntries is up to how many entries a list is not worth making smaller.
	fewEntries = 64
	// left is how many entries After passes over for each that it may return.
	left = 4
)

// Enter adds a record that is not in the list, at the moment now or right after the last one.
func (x *Index) Enter(slot int32, now int64) {
	if x.entered == nil {
		x.entered = make(map[int32]int64)
	}
	x.last = max(x.last+1, now)
	x.entered[slot] = x.last
	x.order = append(x.order, Entry{x.last, slot})
}

// Leave takes a record out. It has no effect on a record that is not in the list.
func (x *Index) Leave(slot int32) {
	delete(x.entered, slot)
	switch {
	case len(x.entered) > 0 && len(x.order) <= max(fewEntries, 2*len(x.entered)):
	case len(x.entered) == 0 && cap(x.order) > fewEntries:
		*x = Index{last: x.last} // a map never becomes smaller
	default:
		x.order = slices.DeleteFunc(x.order, func(e Entry) bool { return !x.Has(e) })
	}
}

// Has reports whether the entry has not left. Another entry of the same record does not count.
func (x *Index) Has(e Entry) bool {
	at, ok := x.entered[e.Slot]
	return ok && at == e.At
}

// Len returns how many records are in the list.
func (x *Index) Len() int { return len(x.entered) }

// After appends the first entries after a moment, at most n, to a list. It stops early where many
// have left. It returns the moment up to which it has looked, and whether there is more to see.
func (x *Index) After(at int64, n int, to []Entry) (entries []Entry, seen int64, more bool) {
	rest := x.order[sort.Search(len(x.order), func(i int) bool { return x.order[i].At > at }):]
	looks := left * n
	for _, e := range rest {
		if n == 0 || looks == 0 {
			return to, at, true
		}
		if x.Has(e) {
			to = append(to, e)
			n--
		}
		at = e.At
		looks--
	}
	return to, at, false
}
