package bench_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A tight is the reference for what requests cost: a protection written by hand that does what
// cannot be left out, and nothing else. It checks the key, hashes the request once, hashes scope
// and key, draws an owner from the kernel, claims and completes under the lock of a shard, and
// sets one timer. The handler gets a request, a body and a header of its own. Its answer is kept
// with a checksum before the client sees it.
//
// There are no options, events or limits. A panic leaves the claim behind, and nothing expires.
//
// There are two of it. One uses the memory of earlier requests again, from pools, wherever that is
// possible. The other takes new memory for each request, as most programs do.
type tight struct {
	next   http.Handler
	pooled bool
	start  time.Time
	shards [64]tightShard
}

type tightShard struct {
	mu      sync.Mutex
	records map[[sha256.Size]byte]*tightRecord
}

type tightRecord struct {
	owner       [16]byte
	fingerprint [sha256.Size]byte
	lapses      time.Duration // since the start, if there is no answer yet
	answer      *tightAnswer
}

type tightAnswer struct {
	status int
	header http.Header
	body   []byte
	sum    uint32
}

// A tightRun is what one run needs, in one allocation. It is the ResponseWriter of its handler.
type tightRun struct {
	request http.Request
	body    tightBody
	header  http.Header
	status  int
	out     *bytes.Buffer
}

func (u *tightRun) Header() http.Header         { return u.header }
func (u *tightRun) WriteHeader(status int)      { u.status = status }
func (u *tightRun) Write(p []byte) (int, error) { return u.out.Write(p) }

// A tightBody must not be read after the run, because its memory is used again.
type tightBody struct{ bytes.Reader }

func (*tightBody) Close() error { return nil }

var (
	tightBodies = sync.Pool{New: func() any { return new([]byte) }}
	tightOuts   = sync.Pool{New: func() any { return new(bytes.Buffer) }}
	tightTimers = sync.Pool{New: func() any { return time.AfterFunc(time.Hour, func() {}) }}
	tightHashes = sync.Pool{New: func() any { return &tightHash{Hash: sha256.New()} }}
	tightTable  = crc32.MakeTable(crc32.Castagnoli)

	tightReplayed = []string{"true"}
	tightProblem  = []byte(`{"type":"about:blank","title":"Key reused","status":409,"code":"key-reused"}`)
	tightType     = []string{"application/problem+json"}
	tightLength   = []string{strconv.Itoa(len(tightProblem))}
)

const tightLease = 30 * time.Second

func newTight(next http.Handler, pooled bool) *tight {
	t := &tight{next: next, pooled: pooled, start: time.Now()}
	for i := range t.shards {
		t.shards[i].records = make(map[[sha256.Size]byte]*tightRecord)
	}
	return t
}

func (t *tight) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	values := r.Header["Idempotency-Key"]
	if len(values) != 1 || !tightKey(values[0]) {
		t.next.ServeHTTP(w, r)
		return
	}
	var body []byte
	if t.pooled {
		memory := tightBodies.Get().(*[]byte)
		defer tightBodies.Put(memory)
		if int64(cap(*memory)) < r.ContentLength {
			*memory = make([]byte, r.ContentLength)
		}
		body = (*memory)[:r.ContentLength]
	} else {
		body = make([]byte, r.ContentLength)
	}
	if _, err := io.ReadFull(r.Body, body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fingerprint := t.fingerprint(r, body)
	name := tightName(values[0])
	shard := &t.shards[name[0]%64]
	var owner [16]byte
	_, _ = rand.Read(owner[:])

	now := time.Since(t.start)
	shard.mu.Lock()
	record := shard.records[name]
	fresh := record == nil
	if fresh {
		record = &tightRecord{owner: owner, fingerprint: fingerprint, lapses: now + tightLease}
		shard.records[name] = record
	}
	recorded, answer := record.fingerprint, record.answer
	shard.mu.Unlock()

	h := w.Header()
	h["Idempotency-Key"] = values
	switch {
	case fresh:
		t.run(w, r, body, shard, record)
	case recorded != fingerprint || answer == nil || crc32.Checksum(answer.body, tightTable) != answer.sum:
		h["Content-Type"], h["Content-Length"] = tightType, tightLength
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write(tightProblem)
	default:
		h["Idempotent-Replayed"] = tightReplayed
		answer.send(w)
	}
}

// run runs the handler and records its answer.
func (t *tight) run(w http.ResponseWriter, r *http.Request, body []byte, shard *tightShard, record *tightRecord) {
	timer := t.timer()
	u := &tightRun{request: *r, header: make(http.Header, 2), out: new(bytes.Buffer)}
	if t.pooled {
		u.out = tightOuts.Get().(*bytes.Buffer)
		u.out.Reset()
	}
	u.body.Reset(body)
	u.request.Body = &u.body
	t.next.ServeHTTP(u, &u.request)
	out := u.out.Bytes()
	if t.pooled {
		out = bytes.Clone(out)
		tightOuts.Put(u.out)
	}
	answer := &tightAnswer{status: u.status, header: u.header, body: out, sum: crc32.Checksum(out, tightTable)}
	shard.mu.Lock()
	record.answer = answer
	shard.mu.Unlock()
	if timer.Stop() && t.pooled {
		tightTimers.Put(timer)
	}
	answer.send(w)
}

// timer is the one that would renew the lease.
func (t *tight) timer() *time.Timer {
	if !t.pooled {
		return time.AfterFunc(tightLease/3, func() {})
	}
	timer := tightTimers.Get().(*time.Timer)
	timer.Reset(tightLease / 3)
	return timer
}

func (a *tightAnswer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

func tightKey(key string) bool {
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || c == ',' || c == '"' {
			return false
		}
	}
	return key != "" && len(key) <= 255
}

// A tightHash is memory for one fingerprint.
type tightHash struct {
	hash.Hash
	head []byte
	sum  [sha256.Size]byte
}

// fingerprint is one SHA-256 of the parts of a request, each with its length.
func (t *tight) fingerprint(r *http.Request, body []byte) [sha256.Size]byte {
	var h *tightHash
	if t.pooled {
		h = tightHashes.Get().(*tightHash)
		defer tightHashes.Put(h)
		h.Reset()
	} else {
		h = &tightHash{Hash: sha256.New()}
	}
	h.head = h.head[:0]
	for _, part := range [...]string{r.Method, r.URL.Path, r.URL.RawQuery, r.Header["Content-Type"][0]} {
		h.head = append(binary.AppendUvarint(h.head, uint64(len(part))), part...)
	}
	_, _ = h.Write(h.head)
	_, _ = h.Write(body)
	h.Sum(h.sum[:0])
	return h.sum
}

// tightName is the digest of scope and key.
func tightName(key string) [sha256.Size]byte {
	var memory [300]byte
	return sha256.Sum256(append(append(memory[:0], "scope\x00"...), key...))
}
