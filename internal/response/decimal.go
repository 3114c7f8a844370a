package response

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// The digits of short lengths, for a Content-Length that costs no allocation.

// decimals returns the numbers from 0 to 9999 with four digits each, one behind the other.
var decimals = sync.OnceValue(func() string {
	var b strings.Builder
	for n := range 10_000 {
		fmt.Fprintf(&b, "%04d", n)
	}
	return b.String()
})

// decimal returns the digits of n. Those of a number below 10,000 are part of a text that is made
// once.
func decimal(n int) string {
	if n >= 10_000 {
		return strconv.Itoa(n)
	}
	zeros := 0
	for limit := 1000; zeros < 3 && n < limit; limit /= 10 {
		zeros++
	}
	return decimals()[4*n+zeros : 4*n+4]
}
