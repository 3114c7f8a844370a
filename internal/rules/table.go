// Package rules holds the decisions of a guard as tables: what the end of a run means, what is left of
// a run whose outcome is open, what becomes of a transaction, what a record says to the verdict on a run
// and to a request, and what a client sees.
//
// The callers gather facts, look up, and act. So two rules that meet stand in one table, side by side, and a
// test goes through each combination of facts. Its rows are printed in docs/reference/rules.md. Two things
// are decided elsewhere: what a status means, by the route's function (idempotency.DefaultOutcome), and what
// becomes of a claim whose process has died, by the store, which alone sees it.
package rules

// A fact is one bit of a set. A set has one fact of each column that a table reads, and may have
// facts of columns that it does not read.
type fact interface{ ~uint64 }

// A Table gives each set of facts a result.
type Table[F fact, R any] struct {
	columns []column[F]
	rows    []row[F, R]
}

// A column names facts of which exactly one is true.
type column[F fact] struct {
	name  string
	facts []named[F]
}

type named[F fact] struct {
	fact F
	name string
}

// A row has the facts that it is for. It is for any fact of a column of which it names none.
type row[F fact, R any] struct {
	when F
	then R
	why  string
}

// newTable returns a table of which the first row that fits decides. The last one must fit always.
func newTable[F fact, R any](columns []column[F], rows []row[F, R]) *Table[F, R] {
	t := &Table[F, R]{columns, rows}
	read := F(0)
	for _, c := range columns {
		read |= c.mask()
	}
	for i := range t.rows {
		r := &t.rows[i]
		r.when |= ^read
		for _, c := range columns {
			if r.when&c.mask() == 0 {
				r.when |= c.mask()
			}
		}
	}
	return t
}

func (c column[F]) mask() (m F) {
	for _, f := range c.facts {
		m |= f.fact
	}
	return m
}

// Of returns the result for a set of facts.
func (t *Table[F, R]) Of(facts F) R {
	last := len(t.rows) - 1
	for i := range t.rows[:last] {
		if facts&^t.rows[i].when == 0 {
			return t.rows[i].then
		}
	}
	return t.rows[last].then
}

// If returns one fact or the other.
func If[F fact](condition bool, yes, no F) F {
	if condition {
		return yes
	}
	return no
}
