package answer_test

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/formtest"
)

// The tests of the stored form. Every stored answer in them belongs to this key and
// fingerprint.

const storedKey = "key"

var storedFingerprint = [32]byte([]byte("0123456789abcdefghijklmnopqrstuv"))

// decode reads an answer and returns it in a form that tests can compare: without the
// memory that Send needs, and with nil for everything empty.
func decode(b []byte, key string, fingerprint [32]byte) (answer.Answer, error) {
	a, err := answer.Decode(b, key, fingerprint, nil)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Answer{
		Kind: a.Kind, Status: a.Status,
		Header: slices.Concat(a.Header), Added: slices.Concat(a.Added), Trailer: slices.Concat(a.Trailer), Body: slices.Concat(a.Body),
	}, nil
}

func TestStoredFormOfAnAnswer(t *testing.T) {
	of := func(name string, a answer.Answer) formtest.Case {
		return formtest.Case{
			Name: name, Encode: func() []byte { return a.Encode(storedKey, storedFingerprint) },
			Decode: func(stored []byte) (any, error) { return decode(stored, storedKey, storedFingerprint) }, Want: a,
		}
	}
	formtest.Check(t, "answer", answer.Version,
		of("kept", answer.Answer{
			Kind: answer.KindKept, Status: http.StatusCreated,
			Header: []answer.Field{
				{"Location", []string{"/charges/1"}}, {"Vary", []string{"Accept", "Origin"}}, {"X-Powered-By", []string{}},
			},
			Added:   []answer.Field{{"Link", []string{"</>"}}},
			Trailer: []answer.Field{{"X-Checksum", []string{"123"}}},
			Body:    []byte("hello"),
		}),
		of("not-kept", answer.NotKept(http.StatusCreated, []string{"/charges/1"})),
		of("value", answer.Answer{Kind: answer.KindValue, Status: http.StatusOK, Body: []byte(`{"charge":1}`)}),
		of("error", answer.Answer{Kind: answer.KindError, Status: http.StatusOK, Body: []byte("no such account")}),
	)
}

func withChecksum(s string) string {
	sum := crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli))
	return string(binary.BigEndian.AppendUint32([]byte(s), sum))
}

// randomAnswer makes answers of all sizes, from nothing to far more than a handler gives.
func randomAnswer(r *rand.Rand) answer.Answer {
	text := func(limit int) string {
		b := make([]byte, r.IntN(limit))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	fields := func() (fields []answer.Field) {
		for range r.IntN(1 << r.IntN(9)) {
			f := answer.Field{Name: text(200), Values: []string{}}
			for range r.IntN(4) {
				f.Values = append(f.Values, text(1<<r.IntN(9)))
			}
			fields = append(fields, f)
		}
		return fields
	}
	return answer.Answer{
		Kind: answer.KindKept + answer.Kind(r.IntN(4)), Status: 100 + r.IntN(900),
		Header: fields(), Added: fields(), Trailer: fields(), Body: slices.Concat([]byte(text(1 << r.IntN(18)))),
	}
}

func TestAnswerSurvivesStorage(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		want, key := randomAnswer(r), strings.Repeat("k", r.IntN(300))
		stored := want.Encode(key, storedFingerprint)
		require.Len(t, stored, cap(stored), "one allocation of the right size")
		got, err := decode(stored, key, storedFingerprint)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// The memory of fields is used again, and that of values never.
func TestAnswersOfOneSpaceAreApart(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	type sent struct{ want, got []string }
	var all []sent
	for range 500 {
		want, space := randomAnswer(r), answer.NewSpace()
		got, err := answer.Decode(want.Encode(storedKey, storedFingerprint), storedKey, storedFingerprint, space)
		require.NoError(t, err, "seed %d", seed)
		for i, f := range got.Header {
			require.Equal(t, want.Header[i].Name, f.Name, "seed %d", seed)
			require.Len(t, f.Values, cap(f.Values), "who appends does not write into another's values")
			all = append(all, sent{want.Header[i].Values, f.Values})
		}
		space.Free()
	}
	for _, values := range all {
		require.True(t, slices.Equal(values.want, values.got), "seed %d", seed)
	}
}

// Whatever part of a stored answer is lost or changed, Decode notices.
func TestDamagedAnswerIsRefused(t *testing.T) {
	a := answer.Answer{
		Kind: answer.KindKept, Status: http.StatusCreated,
		Header:  []answer.Field{{"Location", []string{"/charges/1"}}, {"Vary", []string{"Accept", "Origin"}}},
		Trailer: []answer.Field{{"X-Checksum", []string{"123"}}},
		Body:    []byte("hello"),
	}
	whole := a.Encode(storedKey, storedFingerprint)
	refused := func(b []byte, format string, args ...any) {
		t.Helper()
		_, err := decode(b, storedKey, storedFingerprint)
		require.Error(t, err, append([]any{format}, args...)...)
		if len(b) > 0 && b[0] != whole[0] {
			require.ErrorIs(t, err, answer.ErrVersion)
		} else {
			require.ErrorIs(t, err, answer.ErrCorrupt)
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
	_, err := decode(whole, "other", storedFingerprint)
	require.ErrorIs(t, err, answer.ErrCorrupt)
	_, err = decode(whole, storedKey, [32]byte{})
	require.ErrorIs(t, err, answer.ErrCorrupt)
}

// Bytes that were not altered, and are not of this form, were stored in another one.
func TestWellSummedNonsenseIsRefused(t *testing.T) {
	const head = "\x01\x01\x00\xc9\x03key0123456789abcdefghijklmnopqrstuv"
	for name, stored := range map[string]string{
		"kind 0":                "\x01\x00" + head[2:] + "\x03\x00\x00\x00\x00",
		"kind 5":                "\x01\x05" + head[2:] + "\x03\x00\x00\x00\x00",
		"status 99":             "\x01\x01\x00\x63" + head[4:] + "\x03\x00\x00\x00\x00",
		"status 1000":           "\x01\x01\x03\xe8" + head[4:] + "\x03\x00\x00\x00\x00",
		"no body":               head + "\x03\x00\x00\x00",
		"bytes after the body":  head + "\x03\x00\x00\x00\x00\x00",
		"body too short":        head + "\x03\x00\x00\x00\x02x",
		"lists too short":       head + "\x02\x00\x00\x00",
		"lists too long":        head + "\x04\x00\x00\x00\x00\x00",
		"lists longer than all": head + "\x7f\x00\x00\x00\x00",
		"more fields than any":  head + "\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00",
		"more fields than fit":  head + "\x05\x02\x01A\x00\x00\x00",
		"length over 64 bits":   head + "\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
		"length written long":   head + "\x04\x80\x00\x00\x00\x00",
		"length not ended":      head + "\x03\x00\x00\x00\x80",
		"field without values":  head + "\x03\x01\x01A\x00",
		"value too short":       head + "\x07\x01\x01A\x01\x05x\x00\x00",
		"key longer than all":   "\x01\x01\x00\xc9\x7f" + head[5:],
	} {
		_, err := decode([]byte(withChecksum(stored)), storedKey, storedFingerprint)
		require.ErrorIs(t, err, answer.ErrVersion, name)
	}
}

// A hostile record makes the decoder allocate in proportion to its own size, whatever
// its counts and lengths say.
func TestDecodingAllocatesInProportion(t *testing.T) { // not parallel: it measures
	const head = "\x01\x01\x00\xc9\x03key0123456789abcdefghijklmnopqrstuv"
	many := func(n uint64) string { return string(binary.AppendUvarint(nil, n)) }
	lists := func(lists string) string { return head + many(uint64(len(lists))) + lists + "\x00" }
	for name, stored := range map[string]string{
		"a count for nothing":   lists(many(1 << 40)),
		"a field's count":       lists("\x01\x01A" + many(1<<40)),
		"counts that all match": lists("\x01\x01A" + many(100_000) + strings.Repeat("\x00", 100_000) + "\x00\x00"),
		"as many as bytes left": lists("\x01\x01A" + many(100_000) + strings.Repeat("\x01", 100_000)),
		"as many fields":        lists(many(100_000) + strings.Repeat("\x00", 200_000) + "\x00\x00"),
		"slabs half empty":      lists(many(1000) + strings.Repeat("\x00\x21"+strings.Repeat("\x00", 33), 1000) + "\x00\x00"),
	} {
		b := []byte(withChecksum(stored))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		space := answer.NewSpace()
		_, _ = answer.Decode(b, storedKey, storedFingerprint, space)
		space.Free()
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(40*len(b)+10_000), name)
	}
}

// FuzzAnswer checks that the decoder never panics, and accepts exactly one form of each answer.
func FuzzAnswer(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		a := randomAnswer(r)
		stored := a.Encode(storedKey, storedFingerprint)
		f.Add(stored[:len(stored)-crc32.Size])
	}
	f.Add([]byte("\x01\x01\x00\xc9\x03key0123456789abcdefghijklmnopqrstuv\x05\x01\x01A\x80\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decode(b, storedKey, storedFingerprint); err == nil {
			b = b[:len(b)-crc32.Size]
		}
		stored := []byte(withChecksum(string(b)))
		a, err := decode(stored, storedKey, storedFingerprint)
		if err != nil {
			return
		}
		if again := a.Encode(storedKey, storedFingerprint); string(again) != string(stored) {
			t.Errorf("%q was read as %+v, which is stored as %q", stored, a, again)
		}
	})
}
