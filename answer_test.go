package idempotency_test

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

const answerKey = "key"

var answerFingerprint = idempotency.Fingerprint([]byte("0123456789abcdefghijklmnopqrstuv"))

// The bytes in the stores of the world. If this test fails, the version has to change and
// the old form has to stay readable.
func TestStoredFormOfAnAnswer(t *testing.T) {
	t.Parallel()
	const kept = "\x01\x01\x00\xc9" + // version, kind, status 201
		"\x03key" + "0123456789abcdefghijklmnopqrstuv" +
		"\x03" + // header
		"\x08Location\x01\x0a/charges/1" +
		"\x04Vary\x02\x06Accept\x06Origin" +
		"\x0cX-Powered-By\x00" +
		"\x01" + // trailer
		"\x0aX-Checksum\x01\x03123" +
		"\x05hello"
	const tombstone = "\x01\x02\x00\xc8" + "\x03key" + "0123456789abcdefghijklmnopqrstuv" + "\x00\x00\x00"
	for stored, answer := range map[string]idempotency.StoredAnswer{
		withChecksum(kept): {
			Status: http.StatusCreated,
			Header: []idempotency.StoredField{
				{"Location", []string{"/charges/1"}}, {"Vary", []string{"Accept", "Origin"}}, {"X-Powered-By", []string{}},
			},
			Trailer: []idempotency.StoredField{{"X-Checksum", []string{"123"}}},
			Body:    "hello",
		},
		withChecksum(tombstone): {NotKept: true, Status: http.StatusOK},
	} {
		require.Equal(t, stored, string(idempotency.EncodeAnswer(answer, answerKey, answerFingerprint)))
		got, err := idempotency.DecodeAnswer([]byte(stored), answerKey, answerFingerprint)
		require.NoError(t, err)
		require.Equal(t, answer, got)
	}
	require.Equal(t, "\xd1\xe3\xd2\x16", withChecksum(kept)[len(kept):], "CRC-32C, big endian")
}

func withChecksum(s string) string {
	sum := crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli))
	return string(binary.BigEndian.AppendUint32([]byte(s), sum))
}

// randomAnswer makes answers of all sizes, from nothing to far more than any handler's.
func randomAnswer(r *rand.Rand) idempotency.StoredAnswer {
	text := func(limit int) string {
		b := make([]byte, r.IntN(limit))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	fields := func() (fields []idempotency.StoredField) {
		for range r.IntN(1 << r.IntN(9)) {
			f := idempotency.StoredField{Name: text(200), Values: []string{}}
			for range r.IntN(4) {
				f.Values = append(f.Values, text(1<<r.IntN(9)))
			}
			fields = append(fields, f)
		}
		return fields
	}
	return idempotency.StoredAnswer{
		NotKept: r.IntN(4) == 0, Status: 100 + r.IntN(900),
		Header: fields(), Trailer: fields(), Body: text(1 << r.IntN(18)),
	}
}

func TestAnswerSurvivesStorage(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		answer, key := randomAnswer(r), strings.Repeat("k", r.IntN(300))
		stored := idempotency.EncodeAnswer(answer, key, answerFingerprint)
		require.Len(t, stored, cap(stored), "one allocation of the right size")
		got, err := idempotency.DecodeAnswer(stored, key, answerFingerprint)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, answer, got, "seed %d", seed)
	}
}

// There is no part of a stored answer that can be lost or changed without its being seen.
func TestDamagedAnswerIsRefused(t *testing.T) {
	t.Parallel()
	whole := idempotency.EncodeAnswer(idempotency.StoredAnswer{
		Status:  http.StatusCreated,
		Header:  []idempotency.StoredField{{"Location", []string{"/charges/1"}}, {"Vary", []string{"Accept", "Origin"}}},
		Trailer: []idempotency.StoredField{{"X-Checksum", []string{"123"}}},
		Body:    "hello",
	}, answerKey, answerFingerprint)
	refused := func(b []byte, format string, args ...any) {
		t.Helper()
		_, err := idempotency.DecodeAnswer(b, answerKey, answerFingerprint)
		require.Error(t, err, append([]any{format}, args...)...)
		if len(b) > 0 && b[0] != whole[0] {
			require.ErrorIs(t, err, idempotency.ErrAnswerVersion)
		} else {
			require.ErrorIs(t, err, idempotency.ErrCorrupt)
		}
	}
	for n := range whole {
		refused(whole[:n], "cut to %d bytes", n)
	}
	refused(append(slices.Clone(whole), 0), "a byte more")
	refused(append([]byte{whole[0]}, whole...), "a byte more in front")
	for i := range whole {
		for change := 1; change < 256; change++ {
			b := slices.Clone(whole)
			b[i] ^= byte(change)
			refused(b, "byte %d changed by %#x", i, change)
		}
	}
	_, err := idempotency.DecodeAnswer(whole, "other", answerFingerprint)
	require.ErrorIs(t, err, idempotency.ErrCorrupt)
	_, err = idempotency.DecodeAnswer(whole, answerKey, idempotency.Fingerprint{})
	require.ErrorIs(t, err, idempotency.ErrCorrupt)
}

// A checksum is no secret: what carries a right one can still be wrong everywhere else.
func TestWellSummedNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	const head = "\x01\x01\x00\xc9\x03key0123456789abcdefghijklmnopqrstuv"
	for name, stored := range map[string]string{
		"kind 0":               "\x01\x00" + head[2:] + "\x00\x00\x00",
		"kind 5":               "\x01\x05" + head[2:] + "\x00\x00\x00",
		"status 99":            "\x01\x01\x00\x63" + head[4:] + "\x00\x00\x00",
		"status 1000":          "\x01\x01\x03\xe8" + head[4:] + "\x00\x00\x00",
		"no body":              head + "\x00\x00",
		"bytes after the body": head + "\x00\x00\x00\x00",
		"body too short":       head + "\x00\x00\x02x",
		"more fields than any": head + "\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"length over 64 bits":  head + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"length written long":  head + "\x80\x00\x00\x00",
		"length not ended":     head + "\x00\x00\x80",
		"field without values": head + "\x01\x01A",
		"value too short":      head + "\x01\x01A\x01\x05x",
		"key longer than all":  "\x01\x01\x00\xc9\x7fkey",
	} {
		_, err := idempotency.DecodeAnswer([]byte(withChecksum(stored)), answerKey, answerFingerprint)
		require.ErrorIs(t, err, idempotency.ErrCorrupt, name)
	}
}

// A hostile record makes the decoder allocate in proportion to its own size, whatever
// its counts and lengths say.
func TestDecodingAllocatesInProportion(t *testing.T) { // not parallel: it measures
	const head = "\x01\x01\x00\xc9\x03key0123456789abcdefghijklmnopqrstuv"
	many := func(n int) string { return string(binary.AppendUvarint(nil, uint64(n))) }
	for name, stored := range map[string]string{
		"a count for nothing":   head + many(1<<40),
		"a field's count":       head + "\x01\x01A" + many(1<<40),
		"counts that all match": head + "\x01\x01A" + many(100_000) + strings.Repeat("\x00", 100_000) + "\x00\x00",
		"as many as bytes left": head + "\x01\x01A" + many(100_000) + strings.Repeat("\x01", 100_000),
	} {
		b := []byte(withChecksum(stored))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = idempotency.DecodeAnswer(b, answerKey, answerFingerprint)
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(40*len(b)+10_000), name)
	}
}

// Whatever a handler sets can be read again.
func TestAnswerWithManyFieldsIsReplayed(t *testing.T) {
	t.Parallel()
	twice(t, func(h http.Handler) *server { return serveRecorder(t, h) }, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 5000 {
			w.Header().Set("X-"+strconv.Itoa(i), "1")
			w.Header().Add("X-All", strconv.Itoa(i))
		}
		_, _ = io.WriteString(w, "many")
	})
}

// FuzzAnswer: the decoder never panics, and accepts exactly one form of each answer.
func FuzzAnswer(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		stored := idempotency.EncodeAnswer(randomAnswer(r), answerKey, answerFingerprint)
		f.Add(stored[:len(stored)-crc32.Size])
	}
	f.Add([]byte("\x01\x01\x00\xc9\x03key0123456789abcdefghijklmnopqrstuv\x01\x01A\x80\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := idempotency.DecodeAnswer(b, answerKey, answerFingerprint); err == nil {
			b = b[:len(b)-crc32.Size]
		}
		stored := []byte(withChecksum(string(b)))
		answer, err := idempotency.DecodeAnswer(stored, answerKey, answerFingerprint)
		if err != nil {
			return
		}
		if again := idempotency.EncodeAnswer(answer, answerKey, answerFingerprint); string(again) != string(stored) {
			t.Errorf("%q was read as %+v, which is stored as %q", stored, answer, again)
		}
	})
}
