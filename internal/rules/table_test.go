package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// each calls f with each combination of facts that a table reads.
func (t *Table[F, R]) each(f func(facts F, r R)) {
	var walk func(facts F, columns []column[F])
	walk = func(facts F, columns []column[F]) {
		if len(columns) == 0 {
			f(facts, t.Of(facts))
			return
		}
		for _, n := range columns[0].facts {
			walk(facts|n.fact, columns[1:])
		}
	}
	walk(0, t.columns)
}

// has reports whether a set contains one of the facts.
func has[F fact](set, facts F) bool { return set&facts != 0 }

// check goes through all combinations: each must have a result that the guarantee allows, and each row
// must be the first that fits one of them. The guarantee must notice if a row is missing, or has the
// result of another.
func check[F fact, R any](t *testing.T, table *Table[F, R], allowed func(f F, r R) string) {
	t.Helper()
	var seen F
	for _, c := range table.columns {
		for _, n := range c.facts {
			require.Zero(t, seen&n.fact, "%s: %s is the fact of two columns", c.name, n.name)
			seen |= n.fact
		}
	}
	require.Zero(t, ^table.rows[len(table.rows)-1].when, "the last row must fit always")
	used := make([]bool, len(table.rows))
	table.each(func(f F, r R) {
		for i, row := range table.rows {
			if f&^row.when == 0 {
				used[i] = true
				break
			}
		}
		assert.Empty(t, allowed(f, r), "%s: %v", table.describe(f), r)
	})
	for i, ok := range used {
		require.True(t, ok, "no combination gets to row %d: %s", i+1, table.rows[i].why)
	}
	noticed := func(rows []row[F, R]) (yes bool) {
		other := &Table[F, R]{table.columns, rows}
		other.each(func(f F, r R) { yes = yes || allowed(f, r) != "" })
		return yes
	}
	last := len(table.rows) - 1
	for i, row := range table.rows {
		assert.False(t, i < last && !noticed(slices.Delete(slices.Clone(table.rows), i, i+1)), "the guarantee does not need row %d: %s", i+1, row.why)
		for _, other := range table.rows {
			rows := slices.Clone(table.rows)
			rows[i].then = other.then
			assert.False(t, !reflect.DeepEqual(row.then, other.then) && !noticed(rows), "the guarantee allows %v in row %d: %s", other.then, i+1, row.why)
		}
	}
}

// describe names the facts of a set, column by column; where most facts of a column are possible, those
// that are not.
func (t *Table[F, R]) describe(set F) string {
	var parts []string
	for _, c := range t.columns {
		var yes, no []string
		for _, n := range c.facts {
			if has(set, n.fact) {
				yes = append(yes, n.name)
			} else {
				no = append(no, n.name)
			}
		}
		switch {
		case len(no) == 0:
		case len(no) == 1 && len(yes) > 2:
			parts = append(parts, fmt.Sprintf("%s: not *%s*", c.name, no[0]))
		default:
			parts = append(parts, fmt.Sprintf("%s: *%s*", c.name, strings.Join(yes, "* or *")))
		}
	}
	if len(parts) == 0 {
		return "otherwise"
	}
	return strings.Join(parts, "; ")
}
