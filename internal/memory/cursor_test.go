package memory_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/memory"
	"example.com/idempotency/store"
)

// listed returns a store with records, and the cursors that lead through all of them with the query.
func listed(t testing.TB, q store.Query) (s *memory.Store, cursors []string) {
	t.Helper()
	s = memory.New(memory.Config{})
	for i, key := range guardtest.MemoryKeys(300) {
		c := guardtest.MemoryClaim(uint64(i))
		c.Hold, c.Label = true, "POST /charges"
		guardtest.Claim(t, s, key, c)
	}
	for {
		page, err := s.List(t.Context(), q)
		require.NoError(t, err)
		if q.Cursor = page.Next; q.Cursor == "" {
			return s, cursors
		}
		cursors = append(cursors, q.Cursor)
	}
}

// Whatever a caller makes of a cursor, or takes it for, it is refused, and every part of the store
// goes on.
func TestMemoryStoreRefusesForgedCursors(t *testing.T) {
	held := []store.State{store.Claimed}
	numbers := regexp.MustCompile(`[0-9]+`)
	for _, q := range []store.Query{{Limit: 10}, {Limit: 10, Holding: true}, {Limit: 10, Label: "POST /charges"}, {Limit: 10, States: held}} {
		s, cursors := listed(t, q)
		_, others := listed(t, q)
		require.NotEmpty(t, cursors)
		forged := map[string]store.Query{}
		forge := func(text string) {
			if slices.Contains(cursors, text) {
				return // the seal of a cursor may have any digits in it
			}
			other := q
			other.Cursor = text
			forged[text] = other
		}
		for _, text := range []string{" ", ".", "..", "0.0.", "-1", "0.-1.0", strings.Repeat("9", 1<<20), others[0]} {
			forge(text)
		}
		for _, cursor := range cursors[:2] {
			forge(cursor + " ")
			forge(cursor + ".1")
			forge(" " + cursor)
			forge("0" + cursor)
			forge(cursor[:len(cursor)-1])
			for _, number := range []string{"-1", "64", "9223372036854775807", "00"} {
				for _, at := range numbers.FindAllStringIndex(cursor, -1) {
					forge(cursor[:at[0]] + number + cursor[at[1]:])
				}
			}
			for i, change := range []func(*store.Query){
				func(q *store.Query) { q.Holding = !q.Holding },
				func(q *store.Query) { q.Label += "s" },
				func(q *store.Query) { q.States = append(held, store.Held) },
			} {
				other := q
				other.Cursor = cursor
				change(&other)
				forged[fmt.Sprint(cursor, "of another query", i)] = other
			}
		}
		for name, q := range forged {
			page, err := s.List(t.Context(), q)
			require.ErrorIs(t, err, store.ErrBadCursor, "%.100q", name)
			require.Empty(t, page, "%.100q", name)
		}
		require.Zero(t, s.Locked())
	}
}

// A cursor is good for the same query with another limit or age: a page begins where the last one ended.
func TestMemoryStoreTakesACursorWithAnotherLimit(t *testing.T) {
	s, cursors := listed(t, store.Query{Limit: 10})
	for _, q := range []store.Query{{Limit: 1}, {OlderThan: 1}} {
		q.Cursor = cursors[0]
		_, err := s.List(t.Context(), q)
		require.NoError(t, err)
	}
}

// Of all texts, a store takes the cursors that it has made for the query.
func FuzzMemoryStoreCursor(f *testing.F) {
	queries := []store.Query{{Limit: 10}, {Limit: 10, Holding: true}, {Limit: 10, Label: "POST /charges"}}
	var stores []*memory.Store
	var cursors [][]string
	for _, q := range queries {
		s, texts := listed(f, q)
		stores, cursors = append(stores, s), append(cursors, texts)
	}
	f.Add(uint8(0), uint8(0), uint8(0), uint8(255), "0.-1.0")
	f.Add(uint8(1), uint8(1), uint8(0), uint8(1), "-1")
	f.Add(uint8(2), uint8(0), uint8(2), uint8(3), "9223372036854775807")
	// The cursor in the query with that number gets the text in the place of what is between from and to.
	f.Fuzz(func(t *testing.T, query, number, from, to uint8, text string) {
		n := int(query) % len(queries)
		cursor := cursors[n][int(number)%len(cursors[n])]
		end := min(int(to), len(cursor))
		start := min(int(from), end)
		q := queries[n]
		q.Cursor = cursor[:start] + text + cursor[end:]
		_, err := stores[n].List(t.Context(), q)
		made := q.Cursor == ""
		for _, cursor := range cursors[n] {
			made = made || q.Cursor == cursor
		}
		if made {
			require.NoError(t, err, "%q", q.Cursor)
		} else {
			require.ErrorIs(t, err, store.ErrBadCursor, "%q", q.Cursor)
		}
		require.Zero(t, stores[n].Locked())
	})
}
