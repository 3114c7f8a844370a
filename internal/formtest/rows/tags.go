package rows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/formtest"
	"example.com/idempotency/store"
)

// A Tagged is a store with records that have tags.
type Tagged interface {
	store.Store
	store.Finder
}

// CheckTags is [formtest.Check] for the rows of a table of tags. rows returns the tag, the record and the fingerprint
// of each, in hexadecimal but for the record, in the order of the tags. insert puts such a row into the table.
func CheckTags(t *testing.T, s Tagged, rows func() [][3]string, insert func(tag, record, boundTo string) error) {
	t.Helper()
	order, tenant := store.Tag([]byte("order number 77.")), store.Tag([]byte("tenant is alice."))
	claim := func(key string, tags ...store.Tag) {
		_, err := s.Claim(t.Context(), key, store.Claim{
			Owner: store.Owner([]byte("owner of the run")), Fingerprint: store.Fingerprint([]byte("\x01123456789abcdefghijklmnopqrstuv")),
			Lease: 30 * time.Second, Retention: 24 * time.Hour, Tags: tags,
		})
		require.NoError(t, err)
	}
	claim("key", order, tenant)
	var stored strings.Builder
	for _, row := range rows() {
		_, _ = fmt.Fprintln(&stored, row[0], row[1], row[2])
	}
	formtest.Check(t, "tag-rows", 1, formtest.Case{
		Name: "tagged", Text: true, Want: []string{"key", "other"},
		Encode: func() []byte { return []byte(stored.String()) },
		Decode: func(golden []byte) (any, error) {
			claim("other")
			for line := range strings.Lines(string(golden)) {
				f := strings.Fields(line)
				require.Len(t, f, 3)
				if err := insert(f[0], "other", f[2]); err != nil {
					return nil, err
				}
			}
			var keys []string
			page, err := s.Find(t.Context(), order, store.Query{})
			for _, e := range page.Entries {
				keys = append(keys, e.Key)
			}
			return keys, err
		},
	})
}
