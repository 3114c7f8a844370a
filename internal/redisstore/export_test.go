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
