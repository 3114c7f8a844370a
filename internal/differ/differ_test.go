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

func always(n int) func() int { return func() int { return n } }

// Each kind of field is compared by what it says, and only ignored ones are left out.
func TestFieldsThatDifferAreNamed(t *testing.T) {
	n, table := 1, map[string]int{}
	base := func() settings {
		return settings{inner{1, "a"}, one, []string{"a", "b"}, [2]byte{1, 2}, errors.New, table, &n, "a"}
	}
	require.Empty(t, Fields(new(base()), new(base())))
	for want, change := range map[string]func(s *settings){
		"TTL":     func(s *settings) { s.rules.TTL = 2 },
		"f":       func(s *settings) { s.f = always(1) },
		"names":   func(s *settings) { s.names = []string{"a", "c"} },
		"secret":  func(s *settings) { s.secret[1] = 3 },
		"seal":    func(s *settings) { s.seal = errors.Is },
		"table":   func(s *settings) { s.table = map[string]int{} },
		"pointer": func(s *settings) { s.pointer = new(int) },
	} {
		changed := base()
		change(&changed)
		require.Equal(t, []string{want}, Fields(new(base()), &changed), want)
	}
	none := base()
	none.f, none.seal, none.names = nil, nil, nil
	require.Equal(t, []string{"f", "names", "seal"}, Fields(new(base()), &none))
	require.Equal(t, []string{"f", "names", "seal"}, Fields(&none, new(base())))
	a, b := base(), base()
	a.f, b.f = always(1), always(2)
	require.Equal(t, []string{"f"}, Fields(&a, &b), "the same code that closes over other values")
	b.f = a.f
	require.Empty(t, Fields(&a, &b))
	a.seal, b.seal = inner{1, "a"}, inner{1, "b"}
	require.Equal(t, []string{"seal"}, Fields(&a, &b))
	a.Name, a.rules.Name = "x", "y"
	require.Equal(t, []string{"Name", "seal", "Name"}, Fields(&a, &b), "in the order of the struct")
	require.Equal(t, []string{"seal"}, Fields(&a, &b, "Name"))
}
