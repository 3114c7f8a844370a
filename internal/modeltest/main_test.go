package modeltest

import (
	"flag"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"example.com/idempotency/internal/pgserver"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client logs every failed connection, and there are many
	flag.Parse()
	settings := map[string]string{"rapid.steps": "50", "rapid.nofailfile": "true"}
	if seed := os.Getenv("SEED"); seed != "" {
		settings["rapid.seed"] = seed
	}
	for name, value := range settings {
		// The command line takes precedence.
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(pgserver.Main(m))
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
