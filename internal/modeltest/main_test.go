package modeltest

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client logs every failed connection, and there are many
	flag.Parse()
	for name, value := range map[string]string{
		"rapid.steps": "50", "rapid.nofailfile": "true", "rapid.seed": os.Getenv("SEED"),
	} {
		if value != "" && !given(name) {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// given tells whether a flag is on the command line.
func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// newSeed returns SEED from the environment, or a random seed.
func newSeed(t testing.TB) uint64 {
	t.Helper()
	s := os.Getenv("SEED")
	if s == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}
