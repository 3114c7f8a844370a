package sqlrecord

import (
	"encoding/binary"
	"fmt"

	"example.com/idempotency"
)

// The lists inside a row: its notes and its steps. Each entry is preceded by its length as a
// varint.

const maxNotes = 16

// AppendNote returns the notes with one more, which an empty one is not. It keeps the last 16.
func AppendNote(list, note []byte) []byte {
	if len(note) == 0 {
		return list
	}
	if all := notes(list); len(all) >= maxNotes {
		list = nil
		for _, n := range all[len(all)-maxNotes+1:] {
			list = appendEntry(list, n)
		}
	}
	return appendEntry(list[:len(list):len(list)], note)
}

// notes returns the notes of a list, as far as it can be read: nothing depends on them.
func notes(list []byte) (all [][]byte) {
	for len(list) > 0 {
		note, rest, ok := cutEntry(list)
		if !ok {
			return all
		}
		all, list = append(all, note), rest
	}
	return all
}

// AppendStep returns the steps with one more. A later step replaces an earlier one of its name,
// so that a database can save a step by appending [Step] to what it has.
func AppendStep(list []byte, name string, value []byte) []byte {
	return append(list[:len(list):len(list)], Step(name, value)...)
}

// Step returns the entry of one step.
func Step(name string, value []byte) []byte {
	return appendEntry(appendEntry(make([]byte, 0, len(name)+len(value)+6), []byte(name)), value)
}

// steps returns the steps of a list by name.
func steps(list []byte) (map[string][]byte, error) {
	all := make(map[string][]byte)
	for len(list) > 0 {
		name, rest, ok := cutEntry(list)
		if !ok {
			return nil, fmt.Errorf("%w: steps", idempotency.ErrCorrupt)
		}
		value, rest, ok := cutEntry(rest)
		if !ok {
			return nil, fmt.Errorf("%w: steps", idempotency.ErrCorrupt)
		}
		all[string(name)], list = value, rest
	}
	return all, nil
}

func appendEntry(list, entry []byte) []byte {
	return append(binary.AppendUvarint(list, uint64(len(entry))), entry...)
}

func cutEntry(list []byte) (entry, rest []byte, ok bool) {
	size, n := binary.Uvarint(list)
	if n <= 0 || size > uint64(len(list)-n) {
		return nil, nil, false
	}
	end := n + int(size)
	return list[n:end:end], list[end:], true
}
