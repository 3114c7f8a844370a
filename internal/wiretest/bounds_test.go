package wiretest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/load"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// allocated returns how many bytes f allocates. It is not for parallel tests.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// A client that sends ever new keys fills the store. The store then refuses that client,
// and no other client loses anything: recorded answers are replayed, runs in flight are
// recorded, and held keys stay held.
func TestFullStoreRefusesNewKeysAndForgetsNone(t *testing.T) {
	guardtest.Each(t, map[string]idempotency.MemoryOption{
		"entries": idempotency.WithMaxEntries(50), "bytes": idempotency.WithMaxBytes(50 << 10),
	}, func(t *testing.T, limit idempotency.MemoryOption) {
		entered, leave := make(chan struct{}), make(chan struct{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			switch r.URL.Path {
			case "/slow":
				close(entered)
				<-leave
			case "/failing":
				w.WriteHeader(http.StatusBadGateway)
			}
			_, _ = io.WriteString(w, strings.Repeat("x", 500))
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(limit), idempotency.WithRecovery(idempotency.Hold)).Handler(h))
		first := s.Do(t, guardtest.Call{Key: "recorded"})
		require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "held", Path: "/failing"}).Status)
		slow := make(chan guardtest.Reply, 1)
		go func() { slow <- s.Attempt(t, guardtest.Call{Key: "slow", Path: "/slow"}) }()
		<-entered

		refused := 0
		for i := range 1000 {
			if got := s.Do(t, guardtest.Call{Key: fmt.Sprint(i), Tenant: "flood"}); got.Status != http.StatusOK {
				guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
				refused++
			}
		}
		require.Greater(t, refused, 900)
		require.EqualValues(t, 1000-refused+3, h.Runs.Load(), "a request that was refused has run")

		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "recorded"}))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "recorded", Body: "other"}), http.StatusConflict, problem.KeyReused)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "held", Path: "/failing"}), http.StatusConflict, problem.OutcomeUnknown)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "slow", Path: "/slow"}), http.StatusConflict, problem.InFlight)
		close(leave)
		guardtest.RequireReplay(t, <-slow, s.Do(t, guardtest.Call{Key: "slow", Path: "/slow"}))
	})
}

// Clients that declare long bodies and send nothing pin no memory for them.
func TestWireDeclaredBodiesThatNeverComePinNothing(t *testing.T) { // not parallel: it measures
	const clients, declared = 100, 1 << 20
	w := serveWire(t, &guardtest.Counter{})
	var reading atomic.Int64
	w.serve(t, &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.Body = &announcedBody{r.Body, &reading}
		w.guard.Handler(w.h).ServeHTTP(rw, r)
	})})
	before := heap()
	for range clients {
		w.dial(t).send(message("POST /charges", fmt.Sprintf("%s%sContent-Length: %d\r\n", wireHost, wireKey, declared), ""))
	}
	require.Eventually(t, func() bool { return reading.Load() == clients }, wirePatience, time.Millisecond)
	require.Less(t, heap()-before, int64(clients*declared/8))
	require.Zero(t, w.store.Len())
}

// An announcedBody counts itself when it is first read.
type announcedBody struct {
	io.ReadCloser
	reading *atomic.Int64
}

func (b *announcedBody) Read(p []byte) (int, error) {
	if b.reading != nil {
		b.reading.Add(1)
		b.reading = nil
	}
	return b.ReadCloser.Read(p)
}

// heap returns how many bytes live. Not for parallel tests.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The guard keeps a bounded part of a request or an answer, and does not gather the excess
// first.
func TestLargeBodiesAreNotGathered(t *testing.T) { // not parallel: it measures
	const huge, limit = 256 << 20, 1 << 20
	t.Run("request", func(t *testing.T) {
		h := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithLimits(idempotency.Limits{RequestBody: limit})).Handler(&guardtest.Counter{})
		for _, length := range []int64{-1, huge} {
			body := &countedBody{left: huge}
			got := allocated(func() { require.Equal(t, http.StatusRequestEntityTooLarge, guardtest.Post(h, body, length).Code) })
			require.LessOrEqual(t, huge-body.left, int64(limit+1), "read on after the limit")
			require.Less(t, got, int64(16*limit))
		}
	})
	t.Run("answer", func(t *testing.T) {
		piece := bytes.Repeat([]byte("x"), 64<<10)
		h := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithLimits(idempotency.Limits{ResponseBody: limit})).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range huge / len(piece) {
					_, _ = w.Write(piece)
				}
			}))
		c := load.NewCaller(load.Work{})
		got := allocated(func() { require.Equal(t, http.StatusOK, c.Send(h, "k")) })
		require.Equal(t, huge, c.Answer.Length, "the client gets all of it")
		require.Less(t, got, int64(16*limit))
		require.Equal(t, http.StatusConflict, c.Send(h, "k"))
	})
}

// A countedBody has that many bytes left.
type countedBody struct{ left int64 }

func (b *countedBody) Read(p []byte) (int, error) {
	n := min(int64(len(p)), b.left)
	b.left -= n
	if n == 0 {
		return 0, io.EOF
	}
	return int(n), nil
}

func (b *countedBody) Close() error { return nil }

// The guard decompresses nothing. A few KiB that would grow to 8 MiB reach the handler as
// sent, and the limits count them as sent.
func TestCompressedBodyIsNotDecompressed(t *testing.T) { // not parallel: it measures
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, err := io.Copy(zip, &countedBody{left: 8 << 20})
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	require.Less(t, bomb.Len(), 64<<10)
	for name, fp := range map[string]idempotency.FingerprintFunc{
		"raw": idempotency.RawFingerprint, "JSON": idempotency.JSONFingerprint, "fields": idempotency.FieldsFingerprint("a"),
	} {
		h := &guardtest.Counter{Handler: func(_ http.ResponseWriter, r *http.Request, _ int64) {
			got, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.True(t, bytes.Equal(bomb.Bytes(), got), name)
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithFingerprint(fp)).Handler(h))
		got := allocated(func() {
			s.Do(t, guardtest.Call{Key: "k", Body: bomb.String(), Header: http.Header{"Content-Encoding": {"gzip"}}})
		})
		require.EqualValues(t, 1, h.Runs.Load())
		require.Less(t, got, int64(4<<20), name)
	}
}

// A thousand waiting connections cost what net/http needs for them and not one goroutine of
// the library, and each gets its answer.
func TestThousandWaitersOnAServer(t *testing.T) { // not parallel: it measures
	const waiters, keys = 1000, 20
	leave := make(chan struct{})
	var entered sync.WaitGroup
	entered.Add(keys)
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		entered.Done()
		<-leave
		_, _ = io.WriteString(w, "done")
	}}
	w := &wire{store: idempotency.NewMemoryStore(), h: h}
	st := &guardtest.WatchedStore{FaultStore: &guardtest.FaultStore{Behind: w.store}} // counts calls
	w.guard = guardtest.NewGuard(t, st, idempotency.WithWait(wirePatience))
	w.serve(t, &http.Server{Handler: w.guard.Handler(h)})
	send := func(key int) *wireConn {
		conn := w.dial(t)
		conn.send(message("POST /charges", fmt.Sprintf("%sIdempotency-Key: %d\r\n%s", wireHost, key, wireEmpty), ""))
		return conn
	}
	conns := make([]*wireConn, 0, waiters+keys)
	for key := range keys {
		conns = append(conns, send(key))
	}
	entered.Wait()
	idle := runtime.NumGoroutine()
	memory := liveMemory()
	for i := range waiters {
		conns = append(conns, send(i%keys))
	}
	// Every request has claimed once. For each key, the one that leads the wait has claimed
	// again since it watches.
	require.Eventually(t, func() bool { return st.Count("claim") == waiters+2*keys }, wirePatience, 10*time.Millisecond)
	goroutines, memory := runtime.NumGoroutine()-idle, liveMemory()-memory
	t.Logf("%d waiters: %d goroutines, %d KiB each", waiters, goroutines, memory/waiters>>10)
	// Two goroutines of net/http for each connection, and a watch for each key.
	require.LessOrEqual(t, goroutines, 2*waiters+2*keys)
	require.Less(t, memory/waiters, int64(64<<10))

	close(leave)
	for _, conn := range conns {
		got, ok := conn.receive(t)
		require.True(t, ok)
		require.Equal(t, "done", got.Body)
	}
	require.EqualValues(t, keys, h.Runs.Load())
}

// liveMemory returns the size of heap and stacks after a collection.
func liveMemory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// A client that does not read a streamed answer keeps the handler in a write, and its key in
// flight, until the server's WriteTimeout. Then the run goes on without the client and is
// recorded.
func TestClientThatDoesNotReadHoldsItsKeyUntilTheWriteTimeout(t *testing.T) {
	const pieces, piece = 64, 1 << 20 // more than sockets hold
	stuck, looked := make(chan struct{}, pieces), make(chan struct{})
	w := serveWire(t, &guardtest.Counter{Handler: func(rw http.ResponseWriter, _ *http.Request, _ int64) {
		for range pieces {
			_, _ = rw.Write(make([]byte, piece))
			_ = http.NewResponseController(rw).Flush()
			stuck <- struct{}{}
			<-looked // on a slow machine, the write timeout may be over
		}
	}})
	w.serve(t, &http.Server{Handler: w.guard.Handler(w.h), WriteTimeout: 300 * time.Millisecond})
	w.dial(t).send(message("POST /charges", wirePlain, ""))
	<-stuck
	key := idempotency.Key{Scope: "acme", Value: "k"}
	state := func() store.State {
		info := guardtest.Lookup(t, w.guard, key)
		return info.State
	}
	require.Equal(t, store.Claimed, state())
	close(looked)
	require.Eventually(t, func() bool { return state() == store.Completed }, wirePatience, 10*time.Millisecond)
	require.Len(t, stuck, pieces-1, "the handler does not learn that the client is gone")
}
