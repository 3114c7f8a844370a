package memory

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Two cores that work in two shards do not wait for each other's caches.
func TestShardsShareNoCacheLine(t *testing.T) {
	const line = 64
	require.Zero(t, unsafe.Sizeof(shard{})%line)
	require.Zero(t, unsafe.Offsetof(Store{}.shards)%line)
}
