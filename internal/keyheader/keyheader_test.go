package keyheader_test

import (
	"errors"
	"strings"
	"testing"

	"example.com/idempotency/internal/keyheader"
	"github.com/stretchr/testify/require"
)

func TestBothFormsNameTheSameKey(t *testing.T) {
	for _, tt := range []struct{ bare, quoted string }{
		{"8e03978e-40d5-43dd-bc93-6894a57f9324", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`},
		{"01ARZ3NDEKTSV4RRFFQ69G5FAV", `"01ARZ3NDEKTSV4RRFFQ69G5FAV"`},
		{"a", `"a"`},
		{`a\b`, `"a\\b"`},
		{`\`, `"\\"`},
		{"!#$%&'()*+-./:<=>?@[]^_`{|}~", "\"!#$%&'()*+-./:<=>?@[]^_`{|}~\""},
		{strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`},
		// Other kinds of items are bare keys like any other text without quotes.
		{"42", `"42"`},
		{"?1", `"?1"`},
		{":aGk=:", `":aGk=:"`},
	} {
		for _, around := range []string{"", " ", "\t", " \t "} {
			bare, err := keyheader.Parse(around+tt.bare+around, false)
			if err != nil || bare != tt.bare {
				t.Errorf("bare %q: got %q, %v", tt.bare, bare, err)
			}
			for _, strict := range []bool{false, true} {
				quoted, err := keyheader.Parse(around+tt.quoted+around, strict)
				if err != nil || quoted != tt.bare {
					t.Errorf("quoted %q, strict %v: got %q, %v", tt.quoted, strict, quoted, err)
				}
			}
		}
	}
}

func TestQuotedOnly(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{`"a b"`, "a b"},
		{`" a "`, " a "},
		{`" "`, " "},
		{`"a,b;c=\"d\""`, `a,b;c="d"`},
		{`"\"\\"`, `"\`},
		{`"` + strings.Repeat(`\"`, 255) + `"`, strings.Repeat(`"`, 255)},
	} {
		if got, err := keyheader.Parse(tt.value, true); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.value, got, err, tt.want)
		}
	}
}

func TestParametersAreIgnored(t *testing.T) {
	for _, parameters := range []string{
		";a", ";a;b", "; a", ";  a=1", ";a=1;a=2", ";*a-b_c.d*=1", ";a1",
		";a=-1", ";a=123456789012345", ";a=-123456789012.123", ";a=0.5", ";a=007",
		`;a=""`, `;a="x;\"\\,"`, ";a=tok/en:!#$%&'*+-.^_`|~", ";a=*", ";a=T",
		";a=?0;b=?1", ";a=::", ";a=:aGk=:", ";a=:+/09azAZ==:",
	} {
		if got, err := keyheader.Parse(`"key"`+parameters+" ", true); err != nil || got != "key" {
			t.Errorf("%s: got %q, %v", parameters, got, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  keyheader.Error
	}{
		{"", keyheader.ErrEmpty},
		{" \t ", keyheader.ErrEmpty},
		{`""`, keyheader.ErrEmpty},
		{`"";a=1`, keyheader.ErrEmpty},

		{strings.Repeat("k", 256), keyheader.ErrTooLong},
		{`"` + strings.Repeat("k", 256) + `"`, keyheader.ErrTooLong},
		{`"` + strings.Repeat(`\\`, 256) + `"`, keyheader.ErrTooLong},

		{"a,b", keyheader.ErrList},
		{"a, b", keyheader.ErrList},
		{",", keyheader.ErrList},
		{`a,"b"`, keyheader.ErrList},
		{`"a","b"`, keyheader.ErrList},
		{`"a" , "b"`, keyheader.ErrList},
		{`"a";x=1, "b"`, keyheader.ErrList},
		{`"a",`, keyheader.ErrList},

		{"a b", keyheader.ErrCharacter},
		{"a\tb", keyheader.ErrCharacter},
		{"a;b=1", keyheader.ErrCharacter},
		{"a;", keyheader.ErrCharacter},
		{`a"b`, keyheader.ErrCharacter},
		{`a"`, keyheader.ErrCharacter},
		{"a\x00", keyheader.ErrCharacter},
		{"\x1f", keyheader.ErrCharacter},
		{"\x7f", keyheader.ErrCharacter},
		{"\x80", keyheader.ErrCharacter},
		{"clé", keyheader.ErrCharacter},
		{"\u00a0a", keyheader.ErrCharacter},
		{"\na", keyheader.ErrCharacter},

		{`"`, keyheader.ErrString},
		{`"a`, keyheader.ErrString},
		{`"a\"`, keyheader.ErrString},
		{`"a\`, keyheader.ErrString},
		{`"a\b"`, keyheader.ErrString},
		{"\"a\tb\"", keyheader.ErrString},
		{"\"a\x7f\"", keyheader.ErrString},
		{`"clé"`, keyheader.ErrString},
		{`"a"b`, keyheader.ErrString},
		{`"a" b`, keyheader.ErrString},
		{`"a""b"`, keyheader.ErrString},
		{`"a" ;b`, keyheader.ErrString},

		{`"a";`, keyheader.ErrParameter},
		{`"a";;b`, keyheader.ErrParameter},
		{`"a";B=1`, keyheader.ErrParameter},
		{`"a";1=1`, keyheader.ErrParameter},
		{"\"a\";\tb=1", keyheader.ErrParameter},
		{`"a";b=`, keyheader.ErrParameter},
		{`"a";b= 1`, keyheader.ErrParameter},
		{`"a";b=-`, keyheader.ErrParameter},
		{`"a";b=1.`, keyheader.ErrParameter},
		{`"a";b=1.2345`, keyheader.ErrParameter},
		{`"a";b=1234567890123.1`, keyheader.ErrParameter},
		{`"a";b=1234567890123456`, keyheader.ErrParameter},
		{`"a";b=?`, keyheader.ErrParameter},
		{`"a";b=?2`, keyheader.ErrParameter},
		{`"a";b=:aGk=`, keyheader.ErrParameter},
		{`"a";b=:a-k:`, keyheader.ErrParameter},
		{`"a";b="x`, keyheader.ErrParameter},
		{`"a";b=(1)`, keyheader.ErrParameter},
		{`"a";b=[`, keyheader.ErrParameter},
		{`"a";b=@1`, keyheader.ErrParameter},
	} {
		got, err := keyheader.Parse(tt.value, false)
		if got != "" || !errors.Is(err, tt.want) {
			t.Errorf("%q: got %q, %v, want %v", tt.value, got, err, tt.want)
		}
	}
}

func TestStrictRefusesBareKeys(t *testing.T) {
	for _, value := range []string{"a", " a", "a,b", strings.Repeat("k", 300), "42"} {
		if got, err := keyheader.Parse(value, true); got != "" || !errors.Is(err, keyheader.ErrUnquoted) {
			t.Errorf("%q: got %q, %v", value, got, err)
		}
	}
}

func TestAllocations(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  float64
	}{
		{" 8e03978e-40d5-43dd-bc93-6894a57f9324 ", 0},
		{`"8e03978e-40d5-43dd-bc93-6894a57f9324";v=1`, 0},
		{`"a`, 0},
		{"a;b", 0},
		{`"an escaped \" quote and more than thirty-two bytes"`, 1},
	} {
		require.InDelta(t, tt.want, testing.AllocsPerRun(100, func() { _, _ = keyheader.Parse(tt.value, false) }), 0, tt.value)
	}
}

func BenchmarkParse(b *testing.B) {
	for name, value := range map[string]string{
		"bare":   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		"quoted": `"8e03978e-40d5-43dd-bc93-6894a57f9324"`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := keyheader.Parse(value, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzKey checks the rules that hold for every value. An accepted key is within the limits, can
// be sent again in quotes, and does not depend on white space or strictness. An error is one of
// a few fixed sentences.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{
		"", "abc", " abc\t", `"abc"`, `"a b";c=1;d`, `"\"\\"`, "a,b", `"a", "b"`, "a;b=1",
		`"a";b=:aGk=:;c=?1;d=-1.5;e="x";*f=tok/en`, "cl\u00e9", "a\x00b", `"a`,
		strings.Repeat("k", 256),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := keyheader.Parse(value, false)
		strictKey, strictErr := keyheader.Parse(value, true)
		padded, paddedErr := keyheader.Parse(" \t"+value+"\t ", false)
		if padded != key || !errors.Is(paddedErr, err) {
			t.Fatalf("%q gives %q, %v, but padded %q, %v", value, key, err, padded, paddedErr)
		}
		trimmed := strings.Trim(value, " \t")
		if strings.HasPrefix(trimmed, `"`) {
			if strictKey != key || !errors.Is(strictErr, err) {
				t.Fatalf("%q gives %q, %v, but strictly %q, %v", value, key, err, strictKey, strictErr)
			}
		} else if strictErr == nil || err == nil && key != trimmed {
			t.Fatalf("%q gives %q, %v, and strictly %v", value, key, err, strictErr)
		}
		if err != nil {
			if text := new(keyheader.Error); key != "" || !errors.As(err, text) {
				t.Fatalf("%q gives %q with %v", value, key, err)
			}
			return
		}
		if len(key) < 1 || len(key) > keyheader.MaxLen {
			t.Fatalf("%q gives a key of %d bytes", value, len(key))
		}
		if i := strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
			t.Fatalf("%q gives %q, which is not printable at %d", value, key, i)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := keyheader.Parse(quoted, true); again != key || err != nil {
			t.Fatalf("%q gives %q, but %s gives %q, %v", value, key, quoted, again, err)
		}
	})
}
