package differ

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

type inner struct {
	TTL  int
	Name string
}

type settings struct {
	rules   inner
	f       func() int
	names   []string
	secret  [2]byte
	seal    any
	table   map[string]int
	pointer *int
	Name    string
}

func one() int { return 1 }
func two() int { return 2 }

// Each kind of field is compared by what it says, and only ignored ones are left out.
func TestFieldsThatDifferAreNamed(t *testing.T) {
	t.Parallel()
	n, table := 1, map[string]int{}
	base := func() settings {
		return settings{inner{1, "a"}, one, []string{"a", "b"}, [2]byte{1, 2}, errors.New, table, &n, "a"}
	}
	require.Empty(t, Fields(base(), base()))
	for want, change := range map[string]func(s *settings){
		"TTL":     func(s *settings) { s.rules.TTL = 2 },
		"f":       func(s *settings) { s.f = two },
		"names":   func(s *settings) { s.names = []string{"a", "c"} },
		"secret":  func(s *settings) { s.secret[1] = 3 },
		"seal":    func(s *settings) { s.seal = errors.Is },
		"table":   func(s *settings) { s.table = map[string]int{} },
		"pointer": func(s *settings) { s.pointer = new(int) },
	} {
		changed := base()
		change(&changed)
		require.Equal(t, []string{want}, Fields(base(), changed), want)
	}
	for name, change := range map[string]func(s *settings){
		"nil function": func(s *settings) { s.f = nil },
		"nil value":    func(s *settings) { s.seal = nil },
		"fewer":        func(s *settings) { s.names = s.names[:1] },
		"struct":       func(s *settings) { s.seal = inner{} },
	} {
		changed := base()
		change(&changed)
		require.Len(t, Fields(base(), changed), 1, name)
		require.Len(t, Fields(changed, base()), 1, name)
	}
	a, b := base(), base()
	a.seal, b.seal = inner{1, "a"}, inner{1, "b"}
	require.Equal(t, []string{"seal"}, Fields(a, b))
	a.Name, a.rules.Name = "x", "y"
	require.Equal(t, []string{"Name", "seal", "Name"}, Fields(a, b), "in the order of the struct")
	require.Equal(t, []string{"seal"}, Fields(a, b, "Name"))
}
