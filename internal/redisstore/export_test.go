package redisstore

import (
	"context"

	"example.com/idempotency/store"
)

// LastCursor returns the cursor of a query behind the last server, with keys that did not fit into the
// page.
func LastCursor(s *Store, q *store.Query, left []string) string {
	masters, err := s.server.masters(context.Background())
	if err != nil {
		panic(err)
	}
	return position{master: len(masters), left: left}.text(s.cursorMark(q, masters))
}

// LastTagCursor is LastCursor for a search by a tag.
func LastTagCursor(s *Store, q *store.Query, t store.Tag, left []string) string {
	return position{master: 1, left: left}.text(s.tagMark(q, t))
}
