package sqlrecord

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

func TestClaimDropsReplacedSteps(t *testing.T) {
	t.Parallel()
	claim := store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour}
	r := New(claim, 1)
	for attempt := range byte(50) {
		for _, value := range []string{"mark", "undone"} {
			_, err := r.SaveStep(claim.Owner, "s", []byte(value))
			require.NoError(t, err)
		}
		_, err := r.Release(claim.Owner, store.Release{}, 1)
		require.NoError(t, err)
		claim.Owner = store.Owner{attempt + 2}
		rec, _, err := r.Claim(claim, 1)
		require.NoError(t, err)
		require.Equal(t, map[string][]byte{"s": []byte("undone")}, rec.Steps)
	}
	require.Equal(t, Step("s", []byte("undone")), r.Steps)
}
