package sqlitestore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

// A driver that panics in a call ends that call. It leaves no lock behind, and not the writer of the file, for which
// all others would wait.
func TestPanicOfTheDriverLeavesNoLock(t *testing.T) {
	const name = "sqlite that panics"
	d := &faultyDriver{Driver: &sqlite.Driver{}, commits: driver.Tx.Commit}
	sql.Register(name, d)
	sqlitestore.UseDriver(name)
	t.Cleanup(func() { sqlitestore.UseDriver("sqlite") })
	panics := func(statement string, f func()) {
		t.Helper()
		d.execs = func(s string) {
			if strings.HasPrefix(strings.TrimSpace(s), statement) {
				panic(statement)
			}
		}
		require.Panics(t, f)
		d.execs = nil
	}
	begin := func(s *shop, o store.Owner) func() { return func() { _, _ = s.store.Begin(t.Context(), "k", o) } }
	renew := func(s *shop, o store.Owner) func() { return func() { _ = s.store.Renew(t.Context(), "k", o) } }
	for call, test := range map[string]func(s *shop, o store.Owner){
		"a savepoint": func(s *shop, o store.Owner) { panics("SAVEPOINT", begin(s, o)) },
		"a renewal":   func(s *shop, o store.Owner) { panics("INSERT", renew(s, o)) },
		"a claim that becomes a record when a transaction begins": func(s *shop, o store.Owner) {
			panics("INSERT", renew(s, o)) // which has ended the transaction of the claim
			panics("INSERT", begin(s, o))
		},
	} {
		t.Run(call, func(t *testing.T) {
			s, c := inOneCommit(t, charge), mayBeLost()
			guardtest.Claim(t, s.store, "k", c)
			test(s, c.Owner)
			require.False(t, s.store.IsLocked("k"))
			ctx, cancel := context.WithTimeout(t.Context(), guardtest.Patience)
			defer cancel()
			require.NoError(t, s.store.Renew(ctx, "k", c.Owner))
			_, err := s.store.Claim(ctx, "other", newClaim())
			require.NoError(t, err)
			tx, err := s.store.Begin(ctx, "k", c.Owner)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback(ctx))
		})
	}
}
