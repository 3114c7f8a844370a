package answer

// Names is a set of names of fields. A lookup takes no longer in a large set, so an answer with many
// fields costs no more than its length, however many names somebody has made up. The zero value is an
// empty set, which nothing can be added to.
type Names map[string]struct{}

// NamesOf returns the set of some names, or an empty one that takes no memory.
func NamesOf(names ...string) Names {
	if len(names) == 0 {
		return nil
	}
	set := make(Names, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return set
}

// Has reports whether a name is in the set.
func (n Names) Has(name string) bool {
	_, ok := n[name]
	return ok
}

// Add adds a name, and reports whether it was missing.
func (n Names) Add(name string) bool {
	before := len(n)
	n[name] = struct{}{}
	return len(n) > before
}
