package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
)

// A placed store is the same as every other one at its place.
type placed struct {
	store.Store
	at string
}

func (p *placed) SameAs(other store.Store) bool {
	q, ok := other.(*placed)
	return ok && q.at == p.at
}

// A wrapper does something of its own to what it embeds: it may give other names to the records.
type wrapper struct{ *placed }

// An unwrapping wrapper says that it does not.
type unwrapping struct{ *placed }

func (u unwrapping) SameAs(other store.Store) bool {
	if w, ok := other.(unwrapping); ok {
		other = w.placed
	}
	return u.placed.SameAs(other)
}

type plain struct{ store.Store }

// A list cannot be compared.
type list []store.Store

func (list) SameAs(store.Store) bool { return false }

type uncomparable struct {
	store.Store
	list
}

func TestSame(t *testing.T) {
	a, again, b := &placed{at: "a"}, &placed{at: "a"}, &placed{at: "b"}
	require.True(t, store.Same(a, a))
	require.True(t, store.Same(a, again))
	require.False(t, store.Same(a, b))

	require.True(t, store.Same(wrapper{a}, wrapper{a}))
	for _, pair := range [][2]store.Store{{wrapper{a}, a}, {a, wrapper{a}}, {wrapper{a}, wrapper{again}}, {a, &plain{a}}, {a, nil}, {nil, a}} {
		require.False(t, store.Same(pair[0], pair[1]), "%#v", pair)
	}
	require.True(t, store.Same(unwrapping{a}, unwrapping{again}))

	p := &plain{}
	require.True(t, store.Same(p, p))
	require.False(t, store.Same(p, &plain{a}))
	require.False(t, store.Same(uncomparable{}, uncomparable{list: list{}}))
	require.False(t, store.Same(struct{ store.Store }{uncomparable{}}, struct{ store.Store }{uncomparable{}}))
}
