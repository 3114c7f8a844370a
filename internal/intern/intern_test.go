package intern

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Against a list of uses: each keeps its text, and a text without uses is gone.
func TestTable(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	type use struct {
		number uint32
		text   string
	}
	var table Table
	var uses []use
	for range 5_000 {
		if n := len(uses); n > 0 && random.IntN(2) == 0 {
			i := random.IntN(n)
			table.Release(uses[i].number)
			uses[i] = uses[n-1]
			uses = uses[:n-1]
		} else {
			text := ""
			if n := random.IntN(30); n > 0 {
				text = fmt.Sprint("label ", n)
			}
			uses = append(uses, use{table.Take(text), text})
		}
		distinct := map[string]uint32{}
		for _, u := range uses {
			require.Equal(t, u.text, table.Text(u.number), "seed %d", seed)
			if u.text != "" {
				distinct[u.text] = u.number
			}
		}
		require.Len(t, table.numbers, len(distinct), "seed %d", seed)
		require.LessOrEqual(t, len(table.entries), 29, "numbers are used again")
	}
	for _, u := range uses {
		table.Release(u.number)
	}
	require.Empty(t, table.numbers)
}

// Labels that come and go in great numbers leave nothing behind.
func TestTableBecomesSmall(t *testing.T) {
	var table Table
	for n := range 1000 {
		table.Take(fmt.Sprint(n))
	}
	for n := range uint32(1000) {
		table.Release(n + 1)
	}
	require.Equal(t, Table{}, table)
}
