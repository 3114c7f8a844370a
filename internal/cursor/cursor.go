// Package cursor tells apart the queries that the cursors of lists belong to.
package cursor

import (
	"fmt"

	"example.com/idempotency/store"
)

// Query returns a text that is another one for another query. Two queries that differ in Limit or
// OlderThan only have the same: a page begins at the same place for both, and the age that a caller
// asks for may grow from page to page.
func Query(q *store.Query) string { return fmt.Sprintf("%t %d %q", q.Holding, q.States, q.Label) }
