package store

import "context"

// What a store tells an operator of itself: how much it takes of what it may, and in which forms it keeps records.

// A Gauge is a [Store] that tells an operator how full it is, and which stored forms it has. The console shows both.
type Gauge interface {
	// Usage returns figures that cost the store no walk over its records. An error says that they cannot be had now.
	Usage(ctx context.Context) ([]Figure, error)
	// Forms returns the forms that the store itself gives to records. It has none if records end with its process.
	Forms() []Form
}

// A Figure is how much of something a store takes.
type Figure struct {
	// Name says in a few words what is counted, and where, if a store has several places: "memory of 10.0.0.7:6379".
	Name string
	// Used is how much is taken. Limit is how much may be, and 0 if there is no limit or if it is not known.
	Used, Limit int64
	// Bytes says that both are bytes, and not a number of things.
	Bytes bool
}

// A Form is one of the forms of what is stored, with its versions.
type Form struct {
	// Name is that of docs/reference/compatibility.md, "row" for example.
	Name string
	// Writes are the versions that this version of the library writes, and Reads those that it reads, in ascending order.
	Writes, Reads []int
}

// FormOf returns a form of which the library writes one version. It reads that and all before: what was stored once stays
// readable.
func FormOf(name string, version int) Form {
	f := Form{Name: name, Writes: []int{version}}
	for v := 1; v <= version; v++ {
		f.Reads = append(f.Reads, v)
	}
	return f
}
