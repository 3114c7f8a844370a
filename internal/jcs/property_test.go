package jcs_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// TestSpellingDoesNotMatter writes random values twice, with other member order,
// white space, escapes and number notation.
func TestSpellingDoesNotMatter(t *testing.T) {
	for seed := range uint64(2000) {
		value := randomValue(rand.New(rand.NewPCG(seed, 0)), 4)
		one := spell(rand.New(rand.NewPCG(seed, 1)), value)
		two := spell(rand.New(rand.NewPCG(seed, 2)), value)
		a, b := canonical(t, one), canonical(t, two)
		if a != b {
			t.Fatalf("seed %d:\n%s gives %s\n%s gives %s", seed, one, a, two, b)
		}
		if again := canonical(t, a); again != a {
			t.Fatalf("seed %d: not a fixed point: %s gives %s", seed, a, again)
		}
	}
}

// TestEveryChangeMatters changes one scalar, or one name, of random values.
func TestEveryChangeMatters(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		value := []any{randomValue(rnd, 4), int64(7)}
		before := canonical(t, spell(rnd, value))
		changed := change(rnd, value)
		if after := canonical(t, spell(rnd, changed)); after == before {
			t.Fatalf("seed %d: %v and %v are both %s", seed, value, changed, after)
		}
	}
}

// An object keeps the order of its members, which a map would not.
type object []member

type member struct {
	name  string
	value any
}

func randomValue(rnd *rand.Rand, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch rnd.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return rnd.IntN(2) == 0
	case 2:
		return rnd.Int64() >> rnd.IntN(63)
	case 3, 4:
		return randomString(rnd)
	case 5:
		var elements []any
		for range rnd.IntN(5) {
			elements = append(elements, randomValue(rnd, depth-1))
		}
		return elements
	default:
		var o object
		for i := range rnd.IntN(6) {
			o = append(o, member{randomString(rnd) + strconv.Itoa(i), randomValue(rnd, depth-1)})
		}
		return o
	}
}

func randomString(rnd *rand.Rand) string {
	alphabet := []rune("ab\"\\/\n\x01\x7fé€\ud7ff\ue000\ufb33\uffff\U00010000😀\U0010ffff")
	var s []rune
	for range rnd.IntN(6) {
		s = append(s, alphabet[rnd.IntN(len(alphabet))])
	}
	return string(s)
}

// spell writes v as JSON in one of its many spellings.
func spell(rnd *rand.Rand, v any) string {
	space := func() string { return strings.Repeat(" ", rnd.IntN(2)) + strings.Repeat("\n\t", rnd.IntN(2)) }
	var out strings.Builder
	out.WriteString(space())
	switch v := v.(type) {
	case string:
		out.WriteString(spellString(rnd, v))
	case int64:
		digits := strconv.FormatInt(v, 10)
		switch {
		case v != 0 && rnd.IntN(3) == 0:
			out.WriteString(digits + "000e-3")
		case rnd.IntN(2) == 0:
			out.WriteString(digits + ".00E+0")
		default:
			out.WriteString(digits)
		}
	case []any:
		out.WriteString("[")
		for i, e := range v {
			if i > 0 {
				out.WriteString(",")
			}
			out.WriteString(spell(rnd, e))
		}
		out.WriteString(space() + "]")
	case object:
		out.WriteString("{" + space())
		for i, k := range rnd.Perm(len(v)) {
			if i > 0 {
				out.WriteString("," + space())
			}
			out.WriteString(spellString(rnd, v[k].name) + space() + ":" + spell(rnd, v[k].value))
		}
		out.WriteString("}")
	default:
		fmt.Fprint(&out, map[any]string{nil: "null", true: "true", false: "false"}[v])
	}
	return out.String() + space()
}

func spellString(rnd *rand.Rand, s string) string {
	var out strings.Builder
	out.WriteString(`"`)
	for _, r := range s {
		switch {
		case r > 0xffff && rnd.IntN(2) == 0:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r < ' ' || r <= 0xffff && rnd.IntN(3) == 0:
			fmt.Fprintf(&out, `\u%04x`, r)
		case r == '"' || r == '\\':
			out.WriteString(`\` + string(r))
		default:
			out.WriteRune(r)
		}
	}
	return out.String() + `"`
}

// change returns v with one difference of meaning.
func change(rnd *rand.Rand, v any) any {
	switch v := v.(type) {
	case string:
		return v + "x"
	case int64:
		return v ^ 1
	case bool:
		return !v
	case []any:
		if len(v) == 0 {
			return []any{nil}
		}
		changed := append([]any(nil), v...)
		i := rnd.IntN(len(v))
		changed[i] = change(rnd, v[i])
		return changed
	case object:
		if len(v) == 0 {
			return object{{"x", nil}}
		}
		changed := append(object(nil), v...)
		if i := rnd.IntN(len(v)); rnd.IntN(2) == 0 {
			changed[i].name += "x"
		} else {
			changed[i].value = change(rnd, v[i].value)
		}
		return changed
	default:
		return int64(0)
	}
}
