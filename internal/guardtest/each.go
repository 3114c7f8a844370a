package guardtest

import (
	"testing"
	"testing/synctest"
)

// Each runs a test for each row of a table, under the row's name and beside the others.
func Each[Row any](t *testing.T, table map[string]Row, f func(t *testing.T, row Row)) {
	t.Helper()
	for name, row := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, row)
		})
	}
}

// EachInBubble is [Each] with a bubble of [synctest] for each row.
func EachInBubble[Row any](t *testing.T, table map[string]Row, f func(t *testing.T, row Row)) {
	t.Helper()
	Each(t, table, func(t *testing.T, row Row) {
		synctest.Test(t, func(t *testing.T) { f(t, row) })
	})
}
