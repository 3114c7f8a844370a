package jcs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"example.com/idempotency/internal/jcs"
	"example.com/idempotency/internal/race"
	"github.com/stretchr/testify/require"
)

func canonical(t *testing.T, src string) string {
	t.Helper()
	got, err := jcs.Canonical(nil, []byte(src))
	if err != nil {
		t.Fatalf("Canonical(%.100q): %v", src, err)
	}
	return string(got)
}

func TestCanonicalForm(t *testing.T) {
	tests := []struct{ name, src, want string }{
		{"null", "null", "null"},
		{"true", " true ", "true"},
		{"false", "\r\n\tfalse", "false"},
		{"empty array", "[ ]", "[]"},
		{"empty object", "{ }", "{}"},
		{"empty string", `""`, `""`},
		{"array order", "[ 2 , 1,[3 ] ]", "[2,1,[3]]"},
		{"member order", `{"b":1,"a":{"d":[],"c":2}}`, `{"a":{"c":2,"d":[]},"b":1}`},
		{"names of other letters", `{"ß":1,"ss":2,"i":3,"ı":4,"a":5,"Ab":6}`, `{"Ab":6,"a":5,"i":3,"ss":2,"ß":1,"ı":4}`},
		{"name that begins another", `{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		{"members of the array's elements", `[{"b":1,"a":2},{"d":3,"c":4}]`, `[{"a":2,"b":1},{"c":4,"d":3}]`},
		{"every short escape", `"\b\t\n\f\r\"\\\/"`, `"\b\t\n\f\r\"\\/"`},
		{"control characters", `"\u0000\u0008\u001F\u007f"`, `"\u0000\b\u001f` + "\x7f" + `"`},
		{"no escape that is not needed", `"\u0041\u00e9\u20AC\ud83d\ude00\u2028<>&"`, `"Aé€😀` + "\u2028" + `<>&"`},
		{"noncharacters are kept", `"\uffff\ufdd0"`, "\"\uffff\ufdd0\""},
		{"replacement character is a character", `"\ufffd` + "\ufffd" + `"`, "\"\ufffd\ufffd\""},
		{"names are compared unescaped", `{"\u0062":1,"a":2,"\"":3}`, `{"\"":3,"a":2,"b":1}`},
		// RFC 8785, section 3.2.3: the emoji is written with surrogates and so comes
		// before U+FB33, although its code point is larger.
		{
			"names in the order of UTF-16",
			`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`,
			`{"\r":2,"1":4,"` + "\u0080" + `":6,"ö":7,"€":1,"😀":5,"` + "\ufb33" + `":3}`,
		},
		// RFC 8785, section 3.2.2, with the first number as its double is written: the
		// RFC's 333333333.33333329 has more digits than a double holds.
		{
			"example of the RFC",
			`{
			  "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
			  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
			  "literals": [null, true, false]
			}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],` +
				`"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, canonical(t, tt.src), tt.src)
		})
	}
}

func TestNumbers(t *testing.T) {
	tests := []struct{ src, want string }{
		{"0", "0"},
		{"-0", "0"},
		{"-0.00e7", "0"},
		{"0e99999999", "0"},
		{"1", "1"},
		{"-1", "-1"},
		{"1.0", "1"},
		{"10e-1", "1"},
		{"0.1e1", "1"},
		{"1E+00", "1"},
		{"1.10", "1.1"},
		{"100", "100"},
		{"123.456e2", "12345.6"},
		{"1e20", "100000000000000000000"},
		{"1e21", "1e+21"},
		{"123456789012345678901e0", "123456789012345678901"},
		{"1234567890123456789012", "1.234567890123456789012e+21"},
		{"0.000001", "0.000001"},
		{"0.0000001", "1e-7"},
		{"-12e-8", "-1.2e-7"},
		// A number that is not the shortest form of its double keeps its digits.
		{"12345678901234567890", "12345678901234567890"},
		{"12345678901234567891", "12345678901234567891"},
		{"333333333.33333329", "333333333.33333329"},
		{"0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"},
		{"1e400", "1e+400"},
		{"10e399", "1e+400"},
		{"1e-400", "1e-400"},
		{"1e100000000", "1e+100000000"},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, canonical(t, tt.src), tt.src)
	}
}

// TestNumbersOfRFC8785 has the samples of RFC 8785, appendix B, that are numbers.
func TestNumbersOfRFC8785(t *testing.T) {
	tests := []struct {
		bits uint64
		want string
	}{
		{0x0000000000000000, "0"},
		{0x8000000000000000, "0"},
		{0x0000000000000001, "5e-324"},
		{0x8000000000000001, "-5e-324"},
		{0x7fefffffffffffff, "1.7976931348623157e+308"},
		{0xffefffffffffffff, "-1.7976931348623157e+308"},
		{0x4340000000000000, "9007199254740992"},
		{0xc340000000000000, "-9007199254740992"},
		{0x4430000000000000, "295147905179352830000"},
		{0x44b52d02c7e14af5, "9.999999999999997e+22"},
		{0x44b52d02c7e14af6, "1e+23"},
		{0x44b52d02c7e14af7, "1.0000000000000001e+23"},
		{0x444b1ae4d6e2ef4e, "999999999999999700000"},
		{0x444b1ae4d6e2ef4f, "999999999999999900000"},
		{0x444b1ae4d6e2ef50, "1e+21"},
		{0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
		{0x3eb0c6f7a0b5ed8d, "0.000001"},
		{0x41b3de4355555553, "333333333.3333332"},
		{0x41b3de4355555554, "333333333.33333325"},
		{0x41b3de4355555555, "333333333.3333333"},
		{0x41b3de4355555556, "333333333.3333334"},
		{0x41b3de4355555557, "333333333.33333343"},
		{0xbecbf647612f3696, "-0.0000033333333333333333"},
		{0x43143ff3c1cb0959, "1424953923781206.2"},
	}
	for _, tt := range tests {
		f := math.Float64frombits(tt.bits)
		for _, format := range []byte{'e', 'f'} {
			require.Equal(t, tt.want, canonical(t, strconv.FormatFloat(f, format, -1, 64)))
		}
		if parsed, _ := strconv.ParseFloat(tt.want, 64); parsed != f {
			t.Errorf("%s is %016x, want %016x: the table is wrong", tt.want, math.Float64bits(parsed), tt.bits)
		}
	}
}

// TestDoubles compares the form of random doubles with encoding/json, which writes
// all but -0 as ECMAScript does.
func TestDoubles(t *testing.T) {
	check := func(bits uint64) bool {
		f := math.Float64frombits(bits)
		if math.IsNaN(f) || math.IsInf(f, 0) || f == 0 {
			return true
		}
		want, err := json.Marshal(f)
		require.NoError(t, err)
		got := canonical(t, strconv.FormatFloat(f, 'e', -1, 64))
		return got == string(want)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		src  string
		want error
	}{
		{"", jcs.ErrSyntax},
		{" ", jcs.ErrSyntax},
		{"nul", jcs.ErrSyntax},
		{"nulll", jcs.ErrSyntax},
		{"True", jcs.ErrSyntax},
		{"1 2", jcs.ErrSyntax},
		{"\ufeff1", jcs.ErrSyntax},
		{"1\x00", jcs.ErrSyntax},
		{"\v1", jcs.ErrSyntax},
		{"+1", jcs.ErrSyntax},
		{"-", jcs.ErrSyntax},
		{"01", jcs.ErrSyntax},
		{"-01", jcs.ErrSyntax},
		{"1.", jcs.ErrSyntax},
		{".1", jcs.ErrSyntax},
		{"1.e1", jcs.ErrSyntax},
		{"1e", jcs.ErrSyntax},
		{"1e+", jcs.ErrSyntax},
		{"0x1", jcs.ErrSyntax},
		{"NaN", jcs.ErrSyntax},
		{"[", jcs.ErrSyntax},
		{"]", jcs.ErrSyntax},
		{"[1", jcs.ErrSyntax},
		{"[1,", jcs.ErrSyntax},
		{"[1,]", jcs.ErrSyntax},
		{"[,1]", jcs.ErrSyntax},
		{"[1 1]", jcs.ErrSyntax},
		{"[1}", jcs.ErrSyntax},
		{"{", jcs.ErrSyntax},
		{"{]", jcs.ErrSyntax},
		{"{1:1}", jcs.ErrSyntax},
		{`{"a"}`, jcs.ErrSyntax},
		{`{"a" 1}`, jcs.ErrSyntax},
		{`{"a":}`, jcs.ErrSyntax},
		{`{"a":1,}`, jcs.ErrSyntax},
		{`{"a":1 "b":2}`, jcs.ErrSyntax},
		{`{,"a":1}`, jcs.ErrSyntax},
		{`"`, jcs.ErrSyntax},
		{`"a`, jcs.ErrSyntax},
		{"\"\n\"", jcs.ErrSyntax},
		{"\"\x00\"", jcs.ErrSyntax},
		{`"\`, jcs.ErrSyntax},
		{`"\a"`, jcs.ErrSyntax},
		{`"\u12"`, jcs.ErrSyntax},
		{`"\u12G4"`, jcs.ErrSyntax},
		{`"\ud83d\u12"`, jcs.ErrSyntax},
		{"'a'", jcs.ErrSyntax},
		{"[1]//", jcs.ErrSyntax},
		{`"\ud800"`, jcs.ErrUnicode},
		{`"\ud800\n"`, jcs.ErrUnicode},
		{`"\ud800\u0041"`, jcs.ErrUnicode},
		{`"\ud800\ud800"`, jcs.ErrUnicode},
		{`"\udc00\ud800"`, jcs.ErrUnicode},
		{`"\udc00"`, jcs.ErrUnicode},
		{"\"\xff\"", jcs.ErrUnicode},
		{"\"\xc0\x80\"", jcs.ErrUnicode},
		{"\"\xed\xa0\x80\"", jcs.ErrUnicode},
		{"\"\xe2\x82\"", jcs.ErrUnicode},
		{"{\"\xff\":1}", jcs.ErrUnicode},
		{`{"a":1,"a":1}`, jcs.ErrDuplicate},
		{`{"a":1,"b":2,"a":3}`, jcs.ErrDuplicate},
		{`{"a":1,"\u0061":2}`, jcs.ErrDuplicate},
		{`[{"x":{"":1,"":2}}]`, jcs.ErrDuplicate},
		{`{"a":1,"A":2}`, jcs.ErrDuplicate},
		{`{"aB":1,"b":0,"Ab":2}`, jcs.ErrDuplicate},
		{`{"task":1,"TA\u017f\u212a":2}`, jcs.ErrDuplicate},
		{`{"Ωµ":1,"x":2,"ω\u03bc":3}`, jcs.ErrDuplicate},
		{"1e100000001", jcs.ErrExponent},
		{"1e-100000001", jcs.ErrExponent},
		{"1e999999999999999999999999999", jcs.ErrExponent},
		{strings.Repeat("[", jcs.MaxDepth+1) + strings.Repeat("]", jcs.MaxDepth+1), jcs.ErrDepth},
		{strings.Repeat(`{"a":`, jcs.MaxDepth+1) + "1" + strings.Repeat("}", jcs.MaxDepth+1), jcs.ErrDepth},
	}
	for _, tt := range tests {
		got, err := jcs.Canonical([]byte("before"), []byte(tt.src))
		if !errors.Is(err, tt.want) || string(got) != "before" {
			t.Errorf("Canonical(%.60q) = %q, %v, want %v", tt.src, got, err, tt.want)
		}
	}
}

// TestHostileTexts parses inputs that make careless parsers slow, or crash them. Each is about a
// megabyte. The limit is generous even for a loaded machine, and far below the time of any
// quadratic algorithm.
func TestHostileTexts(t *testing.T) {
	const limit = 10 * time.Second
	var names, sorted []string
	for i := range 50_000 {
		names = append(names, fmt.Sprintf(`"%07d":%d`, (i*7919)%50_000, i))
		sorted = append(sorted, fmt.Sprintf(`"%07d":%d`, i, i))
	}
	// Each level has its members in the wrong order around all deeper ones.
	wrong := strings.Repeat(`{"b":0,"a":`, jcs.MaxDepth)
	tests := []struct{ name, src string }{
		{"deepest array", strings.Repeat("[", jcs.MaxDepth) + strings.Repeat("]", jcs.MaxDepth)},
		{"deepest object", wrong + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", jcs.MaxDepth)},
		{"endless nesting", strings.Repeat("[", 1<<20)},
		{"endless nesting of objects", strings.Repeat(`{"a":`, 1<<18)},
		{"many members", "{" + strings.Join(names, ",") + "}"},
		{"many sorted members", "{" + strings.Join(sorted, ",") + "}"},
		{"many equal names", "{" + strings.Repeat(`"a":1,`, 1<<16) + `"a":1}`},
		{"many elements", "[" + strings.Repeat("0,", 1<<18) + "0]"},
		{"many expanding numbers", "[" + strings.Repeat("1e20,", 1<<17) + "0]"},
		{"many digits", strings.Repeat("9", 1<<20)},
		{"many zeros", "0." + strings.Repeat("0", 1<<20) + "1e1048577"},
		{"huge exponent", "1e" + strings.Repeat("9", 1<<20)},
		{"many escapes", `"` + strings.Repeat(`\u0001`, 1<<17) + `"`},
		{"unclosed string", `"` + strings.Repeat(`\\`, 1<<19)},
	}
	for _, tt := range tests {
		start := time.Now()
		_, _ = jcs.Canonical(nil, []byte(tt.src))
		if took := time.Since(start); took > limit {
			t.Errorf("%s: %d bytes took %v", tt.name, len(tt.src), took)
		}
	}
}

// TestTooLarge needs hardly any memory, because it never touches the pages of its text.
func TestTooLarge(t *testing.T) {
	if _, err := jcs.Canonical(nil, make([]byte, jcs.MaxSize+1)); !errors.Is(err, jcs.ErrSize) {
		t.Errorf("got %v, want %v", err, jcs.ErrSize)
	}
}

func TestCanonicalAppends(t *testing.T) {
	got, err := jcs.Canonical([]byte("before"), []byte(" 1 "))
	if err != nil || string(got) != "before1" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestCanonicalDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop items at random under the race detector")
	}
	src := benchmarkText(10)
	dst := make([]byte, 0, 2*len(src))
	if allocs := testing.AllocsPerRun(100, func() { _, _ = jcs.Canonical(dst, src) }); allocs >= 1 {
		t.Errorf("%v allocations", allocs)
	}
}

// benchmarkText returns an order with n items of about 100 bytes.
func benchmarkText(n int) []byte {
	item := `{"sku": "A-1042", "quantity": 3, "unit_price": 1999, "currency": "EUR", "note": "caf\u00e9 \"au lait\""}`
	return []byte(`{"items": [` + strings.Repeat(item+", ", n-1) + item + `], "customer": "cus_8Xk2", "amount": 5997.50}`)
}

func BenchmarkCanonical(b *testing.B) {
	for _, n := range []int{10, 2500} {
		src := benchmarkText(n)
		b.Run(strconv.Itoa(len(src)), func(b *testing.B) {
			dst := make([]byte, 0, 2*len(src))
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jcs.Canonical(dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
