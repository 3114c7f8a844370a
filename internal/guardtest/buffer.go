package guardtest

import (
	"bytes"
	"sync"
)

// A LockedBuffer is a buffer that several goroutines may write to and read from.
type LockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

// Write appends p.
func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// String returns all that was written.
func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}
