package sqlrecord

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"example.com/idempotency/store"
)

// A Cursor is the last row that a page has looked at. Rows are in the order of their keys, and
// those that hold something in the order of their moments and keys. The zero Cursor comes before all.
type Cursor struct {
	Since Moment
	Key   string
}

// The text of a cursor is the moment, the key and a sum, in base64.
const (
	momentLen, sumLen = 8, 8
	// maxCursor is the length of a cursor at most. The key of a guard has 43 bytes.
	maxCursor = 1024
)

// ParseCursor returns the place from which a query goes on, among the records that have a tag if one is given. It
// refuses, with [store.ErrBadCursor], every text that no page of that query has returned.
func ParseCursor(q *store.Query, tag ...store.Tag) (c Cursor, err error) {
	if q.Cursor == "" {
		return c, nil
	}
	var data []byte
	if len(q.Cursor) <= maxCursor {
		data, err = base64.RawURLEncoding.DecodeString(q.Cursor)
	}
	if err != nil || len(data) <= momentLen+sumLen {
		return c, store.ErrBadCursor
	}
	c.Since = Moment(binary.BigEndian.Uint64(data))
	c.Key = string(data[momentLen : len(data)-sumLen])
	if c.Since < 0 || !isKey(c.Key) || c.text(q, tag...) != q.Cursor {
		return Cursor{}, store.ErrBadCursor
	}
	return c, nil
}

// isKey reports whether a store may have been given the key. A database may refuse other text.
func isKey(key string) bool {
	return !slices.ContainsFunc([]byte(key), func(b byte) bool { return b <= ' ' || b > '~' })
}

// text returns the cursor as text. The sum is that of the place, of the query, without what may
// change from page to page, and of the tag.
func (c Cursor) text(q *store.Query, tag ...store.Tag) string {
	place := append(binary.BigEndian.AppendUint64(nil, uint64(c.Since)), c.Key...)
	states := slices.Compact(slices.Sorted(slices.Values(q.States)))
	all := fmt.Appendf(nil, "%t %d %q %q", q.Holding, states, q.Label, place)
	for _, t := range tag {
		all = fmt.Appendf(all, " %x", t)
	}
	sum := sha256.Sum256(all)
	return base64.RawURLEncoding.EncodeToString(append(place, sum[:sumLen]...))
}
