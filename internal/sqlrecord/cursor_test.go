package sqlrecord

import (
	"errors"
	"math"
	"strings"
	"testing"

	"example.com/idempotency/store"
)

// Whoever knows how a cursor is made can make one. It must name a place that a database can look for.
func TestCursorOfAnImpossiblePlace(t *testing.T) {
	t.Parallel()
	good := Cursor{Since: 1, Key: strings.Repeat("k", 43)}
	for name, c := range map[string]Cursor{
		"a key":            good,
		"the last moment":  {Since: Never, Key: good.Key},
		"a moment too old": {Since: -1, Key: good.Key},
		"the first moment": {Since: math.MinInt64, Key: good.Key},
		"no key":           {Since: 1},
		"NUL":              {Since: 1, Key: "k\x00"},
		"a space":          {Since: 1, Key: "k k"},
		"not ASCII":        {Since: 1, Key: "ß"},
		"not UTF-8":        {Since: 1, Key: "\xff"},
		"a long key":       {Since: 1, Key: strings.Repeat("k", 2000)},
	} {
		var q store.Query
		q.Cursor = c.text(&q)
		got, err := ParseCursor(&q)
		want := error(nil)
		if c.Key != good.Key || c.Since < 0 {
			c, want = Cursor{}, store.ErrBadCursor
		}
		if got != c || !errors.Is(err, want) {
			t.Errorf("%s: got %+v and the error %v, want %+v and %v", name, got, err, c, want)
		}
	}
}

// The Limit may change from page to page, and so may the order in which the states are named.
func TestCursorOfAnotherQuery(t *testing.T) {
	t.Parallel()
	claimed, held := store.Claimed, store.Held
	queries := []store.Query{
		{},
		{Holding: true},
		{Label: "a"},
		{Label: "b"},
		{Label: "a", Holding: true},
		{States: []store.State{claimed}},
		{States: []store.State{held}},
		{States: []store.State{claimed, held}},
		{States: []store.State{claimed}, Label: "a"},
	}
	c := Cursor{Since: 1, Key: "key"}
	for i, of := range queries {
		text := c.text(&of)
		for j, q := range queries {
			q.Cursor, q.Limit = text, 5
			if _, err := ParseCursor(&q); (err == nil) != (i == j) {
				t.Errorf("a cursor of %+v for %+v: the error is %v", of, q, err)
			}
		}
	}
	of := store.Query{States: []store.State{claimed, held}}
	again := store.Query{States: []store.State{held, claimed, held}, Cursor: c.text(&of)}
	if _, err := ParseCursor(&again); err != nil {
		t.Errorf("a cursor of the same states in another order: %v", err)
	}
}
