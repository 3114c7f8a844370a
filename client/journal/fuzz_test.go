package journal_test

import (
	"errors"
	"testing"

	"example.com/idempotency/client/journal"
)

// Whatever is in a file, it is the content of a journal or a reason to refuse it.
func FuzzContent(f *testing.F) {
	head := journal.EncodeLine(`{"journal":1,"size":512}`)
	file := func(lines ...string) []byte {
		data := append([]byte(nil), head...)
		for _, l := range lines {
			data = append(data, journal.EncodeLine(l)...)
		}
		return append(data, make([]byte, 512-len(data))...)
	}
	f.Add([]byte{})
	f.Add(file())
	f.Add(file(`{"name":"a","key":"k","since":"2026-01-01T00:00:00Z"}`, `{"name":"a","finished":"2026-01-01T00:00:01Z"}`))
	f.Add(append(file(`{"name":"a","key":"k"}`)[:100], make([]byte, 412)...))
	f.Add(journal.EncodeLine(`{"journal":1,"size":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := journal.Keys(data)
		if err != nil && !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrMoved) && !errors.Is(err, journal.ErrVersion) {
			t.Error(err)
		}
		for name, key := range keys {
			if key == "" {
				t.Errorf("%q has no key", name)
			}
		}
	})
}
