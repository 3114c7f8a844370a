package rules

// A Keying is a set of facts about the ID and the keys that the last run of a record has derived.
type Keying uint64

// The facts about derived keys, by column.
const (
	KeyKnown Keying = 1 << iota
	OnlyName        // of the record

	DerivedAsNow
	DerivedOtherwise // the route has another namespace or secret now
	DerivedUntold    // the record does not say, because it is of an earlier version
)

var (
	keyOf     = column[Keying]{"the client's key", []named[Keying]{{KeyKnown, "is known"}, {OnlyName, "is not known"}}}
	derivedOf = column[Keying]{"its keys were derived", []named[Keying]{{DerivedAsNow, "as now"}, {DerivedOtherwise, "otherwise"}, {DerivedUntold, "in a way that the record does not tell"}}}
)

// Derived says whether the ID and the keys that a run has derived are told, and so whether a resolver is asked. One that
// asks under other keys hears that nobody knows them.
var Derived = newTable([]column[Keying]{keyOf, derivedOf}, []row[Keying, bool]{
	{OnlyName, false, "nobody can derive them"},
	{DerivedOtherwise, false, "those of now are others, under which no system knows of the run"},
	{0, true, "they are those of the run, as far as its record tells"},
})
