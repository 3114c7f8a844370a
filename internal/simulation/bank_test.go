package simulation

import "fmt"

// A simBank is where the effects of all runs end up: a service outside, which knows nothing of
// the store and forgets nothing. It has a unique constraint on the key that it is given, so
// that it recognises a repetition. It is guarded by the world's mutex.
type simBank struct {
	keys  map[string]string // of each booking
	whose map[string]string // each key is
}

// book makes an effect of a run. Whatever happens to a record, there is one booking for each
// step of each intent: the second has the key of the first.
func (b *simBank) book(w *simulation, k *simKey, payload int, id, derived, step string) {
	if b.keys == nil {
		b.keys, b.whose = map[string]string{}, map[string]string{}
	}
	unique := func(what, key string) {
		switch first, ok := b.keys[what]; {
		case ok && first != key:
			w.failf(k.index, "a second effect of %s: it comes as %s, and came as %s", what, key, first)
		case ok:
			w.seen[simRecognised]++
		}
		if other, ok := b.whose[key]; ok && other != what {
			w.failf(k.index, "%s has the key of %s", what, other)
		}
		b.keys[what], b.whose[key] = key, what
	}
	unique(fmt.Sprintf("%s, step %q", intentOf(k, payload), step), derived)
	if id != "" {
		unique(intentOf(k, payload), id)
	}
}

// has reports whether anything has been booked for an intent.
func (b *simBank) has(k *simKey, payload int) bool {
	_, ok := b.keys[intentOf(k, payload)]
	return ok
}

func intentOf(k *simKey, payload int) string {
	return fmt.Sprintf("payload %d of key %d", payload, k.index)
}
