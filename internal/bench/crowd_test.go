package bench_test

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a busy service does in a second: clients that do not wait for each other share the processors with
// the database.

// crowd is how many clients there are.
const crowd = 32

// writeCrowdTable lets a crowd make the requests of each row, in turn, and writes how many there were. The
// first row is what the others are compared with.
func writeCrowdTable(t *testing.T, out io.Writer, rows []*row) {
	t.Helper()
	each := max(2, int(*share/(5*time.Millisecond))) // requests of a client in one round
	rates := make([][]float64, len(rows))
	for range *rounds {
		for i, r := range rows {
			rates[i] = append(rates[i], rateOf(t, r, each))
		}
	}
	fmt.Fprint(out, "\n| request | requests per second | ratio |\n|---|---:|---:|\n")
	for i, r := range rows {
		ratios := make([]float64, len(rates[i]))
		for n, rate := range rates[i] {
			ratios[n] = rate / rates[0][n]
		}
		fmt.Fprintf(out, "| %s | %.0f | %.2f |\n", r.name, median(rates[i]), median(ratios))
	}
}

// rateOf is how many requests of a row a crowd makes in a second.
func rateOf(t *testing.T, r *row, each int) float64 {
	t.Helper()
	calls := r.prepare(crowd, each)
	wrong := make([]int, len(calls))
	var clients sync.WaitGroup
	start := time.Now()
	for i, call := range calls {
		clients.Go(func() { wrong[i] = run(call, each) })
	}
	clients.Wait()
	took := time.Since(start)
	for _, n := range wrong {
		require.Zero(t, n, r.name)
	}
	return float64(each*len(calls)) / took.Seconds()
}
