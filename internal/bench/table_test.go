package bench_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/load"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/internal/redistest"
)

var (
	rounds = flag.Int("rounds", 1, "how often each row of the tables is measured")
	share  = flag.Duration("share", time.Millisecond, "how long a row is measured each time")
	heap   = flag.Int("heap", 0, "MiB that the process keeps beside: a service has more than a benchmark")
	live   = flag.Int("live", 10_000, "live keys to compare with 1,000")
	only   = flag.String("only", "", "measure only tables with this in their titles")
)

// TestTable prints the tables of docs/explanation/performance.md. With the default flags it only
// proves that every request that is measured gets the answer that it should.
func TestTable(t *testing.T) {
	type table struct {
		title string
		rows  []*row
	}
	tables := []table{
		{"Memory store, 1 KiB in and out", memoryRows(load.Small)},
		{"Memory store, 256 KiB in and out", memoryRows(load.Large)},
		{"Memory store against the tight reference with pools, 1 KiB in and out", tightRows(load.Small, true)},
		{"Memory store against the tight reference with pools, 256 KiB in and out", tightRows(load.Large, true)},
		{"Memory store against the tight reference without pools, 1 KiB in and out", tightRows(load.Small, false)},
		{"Memory store against the tight reference without pools, 256 KiB in and out", tightRows(load.Large, false)},
		{"Memory store, 1 KiB, cores", parallelRows(load.Small)},
		{"Fiber v3, its memory store, 1 KiB in and out", fiberRows(load.Small)},
		{"Fiber v3, its memory store, 256 KiB in and out", fiberRows(load.Large)},
	}
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	obedient := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = obedient.Close() })
	for _, size := range []int{512, 1 << 10, 8 << 10} {
		work := load.New(size, size)
		tables = append(tables, table{fmt.Sprintf("Redis on this machine, %d B in and out", size), redisRows(work, client, obedient)})
	}

	postgres := pgserver.Start(t, "fsync=on")
	near, far := postgresRows(t, postgres, load.Small, 0), postgresRows(t, postgres, load.Small, time.Millisecond)
	tables = append(tables,
		table{"PostgreSQL on this machine, 1 KiB in and out", near},
		table{"PostgreSQL, 1 KiB in and out, a millisecond more for each round trip", far},
	)

	// Last: the garbage collector would have its records to look at in all that follow.
	tables = append(tables, table{"Memory store, live keys, 1 KiB in and 128 B out", liveRows(load.Small.Answering(128), *live)})

	ballast := make([]byte, *heap<<20)
	defer runtime.KeepAlive(ballast)
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %s/%s, %d cores, GODEBUG=%q, %d MiB beside, medians of %d rounds\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), os.Getenv("GODEBUG"), *heap, *rounds)
	for _, table := range tables {
		if !strings.Contains(table.title, *only) {
			continue
		}
		require.NoError(t, measure(table.rows, *rounds, *share), table.title)
		write(&out, table.title, table.rows)
	}
	if title := "Memory store, over sockets, 1 KiB in and out"; strings.Contains(title, *only) {
		fmt.Fprintf(&out, "\n%s\n", title)
		writeSocketTable(t, &out, load.Small)
	}
	for _, crowded := range []table{
		{"PostgreSQL on this machine, 32 clients", near}, {"PostgreSQL, 32 clients, a millisecond more for each round trip", far},
	} {
		if strings.Contains(crowded.title, *only) {
			fmt.Fprintf(&out, "\n%s\n", crowded.title)
			writeCrowdTable(t, &out, crowded.rows)
		}
	}
	t.Log(out.String())
}

// write writes a table as Markdown.
func write(out *strings.Builder, title string, rows []*row) {
	fmt.Fprintf(out, "\n%s\n\n| request | time | floor | ratio | allocs above bare | bytes |\n|---|---:|---:|---:|---:|---:|\n", title)
	for _, r := range rows {
		floor, ratio, above := "", "", ""
		if r.floor != nil {
			floor, ratio = fmt.Sprint(median(r.floors)), fmt.Sprintf("%.2f", r.ratio())
		}
		if r.bare != nil {
			above = fmt.Sprintf("%.1f", median(r.allocs)-median(r.bare.allocs))
		}
		fmt.Fprintf(out, "| %s | %v | %s | %s | %s | %.0f |\n", r.name, median(r.times), floor, ratio, above, median(r.bytes))
	}
}

// ratio is the median of the ratios of the rounds.
func (r *row) ratio() float64 {
	ratios := make([]float64, len(r.times))
	for i := range ratios {
		ratios[i] = float64(r.times[i]) / float64(r.floors[i])
	}
	return median(ratios)
}
