package jcs_test

// Texts of all shapes, for the bounds of cost_test.go.

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// pieces make the elements of an array, each of about n bytes together.
var pieces = []func(rnd *rand.Rand, n int) string{
	repeated("1"), repeated("1e20"), repeated("-1e20"), repeated("123456789012345678901234"), repeated("1e-5"),
	repeated("null"), repeated(`""`), repeated(`"\n"`), repeated("[]"), repeated("{}"), repeated("[1]"), repeated("1 "),
	repeated(`{"":0}`), repeated(`{"":1e20}`), repeated(`{"f0":[1,1]}`), repeated(`{"f1":{"":""}}`),
	repeated(strings.Repeat("[", 990) + strings.Repeat("]", 990)),
	repeated(strings.Repeat(`{"":`, 990) + "1e20" + strings.Repeat("}", 990)),
	repeated(members(65, "a", "B", "c")), repeated(members(300, "k", "K", "ǆ")),
	quoted("x"), quoted(":"), quoted(","), quoted("["), quoted(",:"), quoted(`\"`), quoted(`\u0000`), quoted("ǆ"), quoted("K"),
	func(_ *rand.Rand, n int) string { return strings.Repeat(" ", n) + "1" },
	func(_ *rand.Rand, n int) string { return "0." + strings.Repeat("1", n) },
	func(_ *rand.Rand, n int) string { return strings.Repeat("1", n) },
	func(_ *rand.Rand, n int) string { return members(n/8+1, "", "k") },
	func(_ *rand.Rand, n int) string { return members(n/13+1, "Aa", "aB", "ab") },
	func(rnd *rand.Rand, n int) string { // a name as long as all others together
		name := strings.Repeat([]string{":", "ǆ", "K", "x"}[rnd.IntN(4)], n/2)
		return `{"` + name + `":1,` + members(n/20+70, "k", "L", "m")[1:]
	},
}

func repeated(element string) func(*rand.Rand, int) string {
	return func(_ *rand.Rand, n int) string {
		return strings.Repeat(element+",", n/(len(element)+1)) + "1"
	}
}

func quoted(content string) func(*rand.Rand, int) string {
	return func(_ *rand.Rand, n int) string { return `"` + strings.Repeat(content, n/len(content)) + `"` }
}

// members returns an object of n members in a wrong order, whose names begin with the prefixes in turn.
func members(n int, prefixes ...string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%s%x":1,`, prefixes[i%len(prefixes)], i*7919%n)
	}
	return "{" + b.String() + `"z":1}`
}

// shape returns an array of about size bytes. It has some kinds of pieces in a random order, each with
// a random share of the size. One text in eight is cut off.
func shape(rnd *rand.Rand, size int) string {
	kinds := rnd.Perm(len(pieces))[:1+rnd.IntN(4)]
	shares, sum := make([]float64, len(kinds)), 0.0
	for i := range shares {
		shares[i] = rnd.ExpFloat64()
		sum += shares[i]
	}
	elements := make([]string, len(kinds))
	for i, kind := range kinds {
		elements[i] = pieces[kind](rnd, int(shares[i]/sum*float64(size)))
	}
	text := "[" + strings.Join(elements, ",") + "]"
	if rnd.IntN(8) == 0 {
		return text[:len(text)-1-rnd.IntN(3)]
	}
	return text
}
