package bench_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
		{"Modules for frameworks, 1 KiB in and out", moduleRows(load.Small)},
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
			writeCrowdTable(t, &out, postgres, crowded.rows)
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

// A row is one line of a table: a kind of request, and what was measured of it.
type row struct {
	name  string
	floor *row // what its time is divided by; nil if others are divided by its own
	bare  *row // what its allocations are counted above; nil likewise

	// prepare returns, for each worker, what makes request i of n and tells whether it
	// was answered as it must be. It runs outside of the measurement.
	prepare func(workers, n int) []func(i int) bool
	size    int // of a batch: the requests of one worker between two calls of prepare
	// workers do the work side by side, each with a core; 0 is one, with all cores. The time of
	// a row with one is the processor's, the garbage collector's part included: it does not
	// depend on what else the machine does.
	workers int
	// each tells to take the time of each request, and the median of them. Otherwise it
	// is that of the means of batches, for requests that are shorter than looking at the
	// clock.
	each bool

	// By round: the time of a request, that of one of the floor's meanwhile, and what a
	// request allocates.
	times, floors []time.Duration
	allocs, bytes []float64
}

// measure gives each row its share of time, in turn, as often as there are rounds.
func measure(rows []*row, rounds int, share time.Duration) error {
	for range rounds {
		for _, r := range rows {
			if err := r.round(share); err != nil {
				return err
			}
		}
	}
	return nil
}

// round makes requests until they have taken as long as is asked for. They take turns
// with those of the floor, request by request or batch by batch: what else happens on the
// machine, and how fast it is at the moment, is then the same for both.
func (r *row) round(share time.Duration) error {
	var times, floors []time.Duration
	for took := time.Duration(0); took < share; {
		mine, other := r.newBatch(), r.floor.newBatch()
		mine.cpu, other.cpu = r.workers == 1, r.workers == 1
		if r.each {
			for i := range r.size {
				other.one(i)
				mine.one(i)
			}
		} else {
			other.all()
			mine.all()
		}
		for _, b := range []*batch{mine, other} {
			if b.wrong > 0 {
				return fmt.Errorf("%s: %d requests were not answered as they must be", b.row.name, b.wrong)
			}
		}
		times, floors = append(times, mine.times...), append(floors, other.times...)
		took += mine.took
	}
	r.times = append(r.times, median(times))
	if r.floor != nil {
		r.floors = append(r.floors, median(floors))
	}
	r.count()
	return nil
}

// count takes what the requests of a batch allocate.
func (r *row) count() {
	b := r.newBatch()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.all()
	runtime.ReadMemStats(&after)
	n := float64(r.size * len(b.calls))
	r.allocs = append(r.allocs, float64(after.Mallocs-before.Mallocs)/n)
	r.bytes = append(r.bytes, float64(after.TotalAlloc-before.TotalAlloc)/n)
}

// A batch is a number of requests of one row, on a store of their own.
type batch struct {
	row   *row
	calls []func(i int) bool
	took  time.Duration
	times []time.Duration
	wrong int
	cpu   bool // tells to take the time of the processor
}

// newBatch returns a batch of r's requests; an empty one if r is nil.
func (r *row) newBatch() *batch {
	if r == nil {
		return &batch{row: new(row)}
	}
	return &batch{row: r, calls: r.prepare(max(1, r.workers), r.size)}
}

// one makes request i.
func (b *batch) one(i int) {
	if len(b.calls) == 0 {
		return
	}
	start := time.Now()
	if !b.calls[0](i) {
		b.wrong++
	}
	b.note(time.Since(start), 1)
}

// all makes all requests.
func (b *batch) all() {
	if len(b.calls) == 0 {
		return
	}
	if b.row.workers > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(b.row.workers))
	}
	n := b.row.size
	wrong := make([]int, len(b.calls))
	var others sync.WaitGroup
	elapsed := b.clock()
	for w, call := range b.calls[1:] {
		others.Go(func() { wrong[w+1] = run(call, n) })
	}
	wrong[0] = run(b.calls[0], n)
	others.Wait()
	b.note(elapsed(), n*len(b.calls))
	for _, n := range wrong {
		b.wrong += n
	}
}

// clock starts a clock, and returns what reads it.
func (b *batch) clock() func() time.Duration {
	if !b.cpu {
		start := time.Now()
		return func() time.Duration { return time.Since(start) }
	}
	start := load.CPUTime()
	return func() time.Duration { return load.CPUTime() - start }
}

// note notes how long n requests took.
func (b *batch) note(took time.Duration, n int) {
	b.took += took
	b.times = append(b.times, took/time.Duration(n))
}

// run makes n requests and returns how many were not answered as they must be.
func run(call func(i int) bool, n int) (wrong int) {
	for i := range n {
		if !call(i) {
			wrong++
		}
	}
	return wrong
}

// median is what a row shows: one round that was disturbed does not change it.
func median[T ~int64 | ~float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// What a busy service does in a second: clients that do not wait for each other share the processors with
// the database.

// crowd is how many clients there are.
const crowd = 32

// A crowding is what a crowd has done in one round of a row: requests per second, and the time of the processor
// that each took on both sides, in µs.
type crowding struct{ rate, client, server float64 }

// writeCrowdTable lets a crowd make the requests of each row, in turn, and writes how many there were. The
// first row is what the others are compared with.
func writeCrowdTable(t *testing.T, out io.Writer, server *pgserver.Server, rows []*row) {
	t.Helper()
	each := max(2, int(*share/(5*time.Millisecond))) // requests of a client in one round
	conn, err := pgx.Connect(t.Context(), server.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	done := make([][]crowding, len(rows))
	for range *rounds {
		for i, r := range rows {
			done[i] = append(done[i], crowdOn(t, conn, r, each))
		}
	}
	fmt.Fprint(out, "\n| request | requests per second | ratio | µs of the clients | of the server |\n|---|---:|---:|---:|---:|\n")
	for i, r := range rows {
		of := func(f func(n int, c crowding) float64) float64 {
			values := make([]float64, len(done[i]))
			for n, c := range done[i] {
				values[n] = f(n, c)
			}
			return median(values)
		}
		fmt.Fprintf(out, "| %s | %.0f | %.2f | %.0f | %.0f |\n", r.name,
			of(func(_ int, c crowding) float64 { return c.rate }), of(func(n int, c crowding) float64 { return c.rate / done[0][n].rate }),
			of(func(_ int, c crowding) float64 { return c.client }), of(func(_ int, c crowding) float64 { return c.server }))
	}
}

// crowdOn lets a crowd make the requests of a row.
func crowdOn(t *testing.T, conn *pgx.Conn, r *row, each int) crowding {
	t.Helper()
	calls := r.prepare(crowd, each)
	wrong := make([]int, len(calls))
	var clients sync.WaitGroup
	server, client, start := serverTime(t, conn), load.CPUTime(), time.Now()
	for i, call := range calls {
		clients.Go(func() { wrong[i] = run(call, each) })
	}
	clients.Wait()
	took, mine := time.Since(start), load.CPUTime()-client
	theirs := serverTime(t, conn) - server
	for _, n := range wrong {
		require.Zero(t, n, r.name)
	}
	n := float64(each * len(calls))
	return crowding{rate: n / took.Seconds(), client: float64(mine.Microseconds()) / n, server: float64(theirs.Microseconds()) / n}
}

// serverTime is the time of the processor that the processes of a PostgreSQL server have had. Only Linux tells.
func serverTime(t *testing.T, conn *pgx.Conn) (all time.Duration) {
	t.Helper()
	var pids []int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(pid) FROM pg_stat_activity").Scan(&pids))
	for _, pid := range pids {
		told, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		var has time.Duration
		_, _ = fmt.Sscan(string(told), &has) // nothing of a process that has ended
		all += has
	}
	return all
}
