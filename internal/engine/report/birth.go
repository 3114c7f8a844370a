package report

import (
	"fmt"
	"sync"
	"time"

	"example.com/idempotency/store"
)

// A Birth is what the mark of a store tells. No two marks have one Owner. The clock of the store says how long ago At was.
type Birth struct {
	Owner store.Owner
	At    time.Time
}

// Births are what this process has seen of its store.
type Births struct {
	mu   sync.Mutex
	last Birth
}

// Hear looks at the mark. It returns that, and an error that says what has become of the store if it is not the one
// that was known. No look comes after a later one.
func (b *Births) Hear(look func() (Birth, error)) (now Birth, reset, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, err = look()
	was := b.last
	if err != nil || was.Owner == now.Owner {
		return now, nil, err
	}
	if b.last = now; was != (Birth{}) {
		reset = resetError(was, now)
	}
	return now, reset, nil
}

// resetError says what has become of a store.
func resetError(was, now Birth) error {
	const minute = "2006-01-02 15:04 UTC"
	born := now.At.UTC().Format(minute)
	if now.At.Before(was.At) {
		return fmt.Errorf("idempotency: a store that was born at %s has taken the place of the one that was born at %s; keys that only the latter knew run again",
			born, was.At.UTC().Format(minute))
	}
	return fmt.Errorf("idempotency: the store was empty at %s; keys from before that run again", born)
}
