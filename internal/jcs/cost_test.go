package jcs_test

// What hostile texts cost, in memory and in time.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"example.com/idempotency/internal/jcs"
	"example.com/idempotency/internal/race"
)

// costly are texts of about a mebibyte that cost the most, each in its own way.
func costly() map[string][]byte {
	const size = 1 << 20
	members := func(n int, prefixes ...string) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%s%06d":1,`, prefixes[i%len(prefixes)], (i*7919)%n)
		}
		return []byte("{" + b.String() + `"z":1}`)
	}
	list := func(element string) []byte {
		return []byte("[" + strings.Repeat(element+",", size/(len(element)+1)) + "1]")
	}
	return map[string][]byte{
		"order":   benchmarkText(10_000),
		"string":  []byte(`"` + strings.Repeat("x", size) + `"`),
		"members": members(80_000, "k"),
		// Names are sorted twice where the order without regard to case is another one.
		"case":     members(80_000, "k", "K", "l"),
		"alphabet": members(23_000, strings.Repeat("ǆ", 16), strings.Repeat("ǅ", 16), strings.Repeat("Ǆ", 16)),
		"deep":     list(strings.Repeat(`{"a":`, 990) + "1" + strings.Repeat("}", 990)),
		"flat":     list("1"),
		"longer":   list("1e20"),
		"objects":  list(`{"":0}`),
		// The second half of these differs from what the first lets expect.
		"front": []byte("[" + strings.Repeat("1,", size/8) + `"` + strings.Repeat("x", size*3/4) + `"]`),
		"back":  []byte(`["` + strings.Repeat("x", size/2) + `"` + strings.Repeat(",1", size/4) + `]`),
		"end":   []byte(`["` + strings.Repeat("x", size*3/4) + `"` + strings.Repeat(",1e20", size/24) + `]`),
		"mixed": []byte(`["` + strings.Repeat("x", size/20) + `"` + strings.Repeat(",1e20", size*6/100) + strings.Repeat(",1", size*65/200) + `]`),
		// Punctuation in strings looks like more values than there are.
		"commas": []byte(`"` + strings.Repeat(",", size) + `"`),
		"colons": []byte(`{"` + strings.Repeat(":", size*3/8) + `":[1` + strings.Repeat(",1e20", size/8) + `],` + string(members(70, "k", "K", "l")[1:])),
		// A text that is cut off has brackets that do not count as values of two bytes.
		"open": []byte(strings.Repeat("[", 900) + strings.Repeat("1,", size/2)),
	}
}

// shapes calls check with each costly text, and with texts of random shapes.
func shapes(check func(name string, src []byte)) {
	for name, src := range costly() {
		check(name, src)
	}
	for seed := range uint64(80) {
		check(fmt.Sprint("seed ", seed), []byte(shape(rand.New(rand.NewPCG(seed, 0)), 1<<18)))
	}
}

// checkMemory fails if f allocates more than 16 times the size of the text src, whatever it contains.
func checkMemory(t *testing.T, name string, src []byte, f func() error) {
	t.Helper()
	const most = 16
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := f()
	runtime.ReadMemStats(&after)
	if err != nil && json.Valid(src) { // a text that is cut off takes memory too
		t.Fatalf("%s: %v", name, err)
	}
	if got := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(src)); got > most {
		t.Errorf("%s: %.1f bytes for each of the text", name, got)
	}
}

// The memory that is allocated for a text is at most 16 times its size.
func TestMemoryIsBounded(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has memory of its own")
	}
	shapes(func(name string, src []byte) {
		checkMemory(t, name, src, func() error {
			_, err := jcs.Canonical(nil, src)
			return err
		})
	})
}

// However many paths there are, they take no more memory than the canonical form, even if each
// finds something in every element of an array.
func TestMemoryOfPathsIsBounded(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has memory of its own")
	}
	paths := []jcs.Path{{""}, {"f0"}, {"f0", "x"}, {"f1"}, {"f1", ""}, {"f2"}, {"f3"}, {"f4"}, {"f5"}, {"f6"}}
	shapes(func(name string, src []byte) {
		checkMemory(t, name, src, func() error {
			d, err := jcs.Read(src)
			if err != nil {
				return err
			}
			defer d.Free()
			for _, path := range paths {
				if _, err := d.Select(path); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// In a large object too, names that differ only in case count as one, and no others do.
func TestNamesOfALargeObject(t *testing.T) {
	names := make([]string, 0, 300)
	for i := range 100 {
		names = append(names, fmt.Sprintf(`"a%d":0`, i), fmt.Sprintf(`"B%d":0`, i), fmt.Sprintf(`"ǅ%d":0`, i))
	}
	object := func(more ...string) []byte { return []byte("{" + strings.Join(append(more, names...), ",") + "}") }
	for _, other := range []string{`"c1":0`, `"a100":0`, `"A":0`, `"":0`} {
		if _, err := jcs.Canonical(nil, object(other)); err != nil {
			t.Errorf("%s: %v", other, err)
		}
	}
	for _, twin := range []string{`"a50":0`, `"A0":0`, `"b99":0`, `"Ǆ7":0`, `"ǆ7":0`} {
		if _, err := jcs.Canonical(nil, object(twin)); !errors.Is(err, jcs.ErrDuplicate) {
			t.Errorf("%s: got %v", twin, err)
		}
	}
}

// BenchmarkCostly shows what a text of a mebibyte can cost.
func BenchmarkCostly(b *testing.B) {
	for name, src := range costly() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jcs.Canonical(nil, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
