package slab

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A table is records of which there is nothing but their values.
type table []Ref

func (t table) Ref(slot int32) *Ref { return &t[slot] }

func (t table) set(a *Arena, slot int32, head, tail []byte) { a.Set(t, slot, &t[slot], head, tail) }
func (t table) drop(a *Arena, slot int32)                   { a.Drop(t, &t[slot]) }

// requireValue checks both parts of a value.
func requireValue(t *testing.T, a *Arena, r Ref, want value, seed uint64) {
	t.Helper()
	head, tail := a.Value(r)
	require.True(t, bytes.Equal(want.head, head) && bytes.Equal(want.tail, tail), "seed %d", seed)
	require.Equal(t, len(head), cap(head), "who appends to a value overwrites the next one")
	require.Equal(t, len(tail), cap(tail), "who appends to a value overwrites the next one")
	require.Equal(t, len(head)+len(tail), r.Size())
}

// A value is its two parts.
type value struct{ head, tail []byte }

// room returns how much memory the blocks take, and how much of it is still unwritten.
func (a *Arena) room() (all, unwritten int) {
	for i, b := range a.blocks {
		all += cap(b.bytes)
		if uint32(i+1) == a.current {
			unwritten = cap(b.bytes) - len(b.bytes)
		}
	}
	return all, unwritten
}

// Against a map: values come and go in any order, with ends that differ much, and so do their
// sizes. Whatever was handed out stays as it was.
func TestArena(t *testing.T) {
	for round := range uint64(8) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, round))
			sizes := []int{1, 30, 300, 3000, MaxValue}[:1+random.IntN(5)]
			values, records, model := Arena{}, make(table, 1<<(3+random.IntN(8))), map[int32]value{}
			type handed struct{ got, want []byte }
			var out []handed
			for step := range 5_000 {
				slot := int32(random.IntN(len(records)))
				if random.IntN(3) > 0 { // few records change often, and some hardly ever
					slot %= int32(1 + len(records)/4)
				}
				switch random.IntN(5) {
				case 0:
					records.drop(&values, slot)
					delete(model, slot)
				case 1: // the head stays, and is a part of the old value
					head, _ := values.Value(records[slot])
					tail := content(random, min(20, MaxValue-len(head)))
					records.set(&values, slot, head, tail)
					model[slot] = value{model[slot].head, tail}
				default:
					both := content(random, random.IntN(1+sizes[random.IntN(len(sizes))]))
					cut := random.IntN(1 + len(both))
					records.set(&values, slot, both[:cut], both[cut:])
					model[slot] = value{both[:cut], both[cut:]}
				}
				slot = int32(random.IntN(len(records)))
				requireValue(t, &values, records[slot], model[slot], seed)
				if step%16 == 0 {
					head, tail := values.Value(records[slot])
					out = append(out, handed{head, bytes.Clone(head)}, handed{tail, bytes.Clone(tail)})
				}
				requireSmall(t, &values, model, seed)
			}
			for _, h := range out {
				require.True(t, bytes.Equal(h.want, h.got), "what was handed out has changed, seed %d", seed)
			}
			for slot := range records {
				requireValue(t, &values, records[slot], model[int32(slot)], seed)
				records.drop(&values, int32(slot))
			}
			all, _ := values.room()
			require.LessOrEqual(t, all, maxBlock, "only the block that is being filled stays")
			require.Zero(t, values.live)
		})
	}
}

func content(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// requireSmall checks that the arena knows how much lives, and takes at most twice that, besides the
// block that is being filled and the ends of blocks, which are too short for another value.
func requireSmall(t *testing.T, a *Arena, model map[int32]value, seed uint64) {
	t.Helper()
	live := 0
	for _, v := range model {
		if n := len(v.head) + len(v.tail); n > 0 {
			live += headerLen + n
		}
	}
	require.Equal(t, a.live, live, "%d bytes live, and the arena counts %d, seed %d", live, a.live, seed)
	written := 0
	for i, b := range a.blocks {
		if uint32(i+1) != a.current {
			written += len(b.bytes)
		}
	}
	require.LessOrEqual(t, written, 2*live, "%d bytes are kept for %d, seed %d", written, live, seed)
}

// One value that lives for long must not keep a block with a thousand that are gone, neither when
// they go one by one later nor when all are gone before the block is full.
func TestOneValueKeepsNoBlock(t *testing.T) {
	for _, late := range []bool{false, true} {
		const n = 20_000
		values, records, value := Arena{}, make(table, n), make([]byte, 500)
		for slot := range int32(n) {
			records.set(&values, slot, value, nil)
			if !late && slot%100 != 0 {
				records.drop(&values, slot)
			}
		}
		for slot := range int32(n) {
			if slot%100 != 0 {
				records.drop(&values, slot)
			}
		}
		all, _ := values.room()
		require.Less(t, all, 2*n/100*(headerLen+len(value))+maxBlock, "late: %t", late)
		for slot := int32(0); slot < n; slot += 100 {
			require.Equal(t, len(value), records[slot].Size())
		}
	}
}

// Every shard of every store has an arena.
func TestSmallArenaTakesLittle(t *testing.T) {
	values, records := Arena{}, make(table, 10)
	for i := range 10_000 { // ten values that change often
		records.set(&values, int32(i%10), make([]byte, 200), nil)
	}
	all, _ := values.room()
	require.LessOrEqual(t, all, 2*minBlock)
}

// Most records have the same TTL. Then nothing has to move.
func TestValuesThatDieInOrderDoNotMove(t *testing.T) {
	const n, live = 20_000, 1000
	values, records := Arena{}, make(table, n)
	var before Ref
	for slot := range int32(n) {
		records.set(&values, slot, make([]byte, 500), nil)
		if slot == n/2 {
			before = records[slot]
		}
		if slot >= live {
			if slot-live == n/2 {
				require.Equal(t, before, records[slot-live])
			}
			records.drop(&values, slot-live)
		}
	}
	all, _ := values.room()
	require.Less(t, all, live*(headerLen+500)+3*maxBlock)
}

// What moves is paid for by what has gone, or a call could take long for nothing.
func TestFewBytesMove(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	const n = 500
	values, records, before := Arena{}, make(table, n), make(table, n)
	put, moved := 0, 0
	for range 20 * n {
		slot := int32(random.IntN(n))
		value := make([]byte, 1+random.IntN(1000))
		copy(before, records)
		records.set(&values, slot, value, nil)
		put += headerLen + len(value)
		atOnce := 0
		for other, r := range records {
			if old := before[other]; int32(other) != slot && r != old {
				atOnce += headerLen + int(old.size)
			}
		}
		require.LessOrEqual(t, atOnce, 2*maxBlock, "seed %d", seed)
		moved += atOnce
	}
	require.Positive(t, moved)
	require.LessOrEqual(t, moved, put-values.live, "seed %d", seed)
}
