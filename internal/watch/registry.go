// Package watch keeps lists of those who wait for keys of a store, and wakes them. A
// [Registry] is such a list. A [Subscription] is a list that a server's messages wake.
package watch

// A Registry is a list of those who wait, by key. The zero Registry is empty. It has no
// lock of its own: its owner must guard it.
type Registry struct {
	waiting map[string]map[chan struct{}]struct{}
}

// Add adds one who waits for the key. A value on the channel is a wakeup. Wakeups that
// nobody has received are merged into one.
func (r *Registry) Add(key string) chan struct{} {
	if r.waiting == nil {
		r.waiting = make(map[string]map[chan struct{}]struct{})
	}
	if r.waiting[key] == nil {
		r.waiting[key] = make(map[chan struct{}]struct{})
	}
	wake := make(chan struct{}, 1)
	r.waiting[key][wake] = struct{}{}
	return wake
}

// Remove removes the one who waits on that channel. It may be called again.
func (r *Registry) Remove(key string, wake chan struct{}) {
	delete(r.waiting[key], wake)
	if len(r.waiting[key]) == 0 {
		delete(r.waiting, key)
	}
}

// Len returns how many keys are waited for.
func (r *Registry) Len() int { return len(r.waiting) }

// Wake wakes those who wait for the key.
func (r *Registry) Wake(key string) {
	for wake := range r.waiting[key] {
		send(wake)
	}
}

// WakeAll wakes all who wait.
func (r *Registry) WakeAll() {
	for _, waiting := range r.waiting {
		for wake := range waiting {
			send(wake)
		}
	}
}

// send leaves a value in a channel of capacity one, unless there is one already.
func send(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
