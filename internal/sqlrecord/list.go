package sqlrecord

import (
	"encoding/binary"
	"fmt"

	"example.com/idempotency/store"
)

// The list of steps inside a row. Each name and each value is preceded by its length as a varint.

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
			return nil, fmt.Errorf("%w: steps", store.ErrCorrupt)
		}
		value, rest, ok := cutEntry(rest)
		if !ok {
			return nil, fmt.Errorf("%w: steps", store.ErrCorrupt)
		}
		all[string(name)], list = value, rest
	}
	return all, nil
}

// listOf returns the list of steps that none replaces. What was replaced is not in it: each attempt may have set a
// mark and taken it away.
func listOf(steps map[string][]byte) (list []byte) {
	for name, value := range steps {
		list = AppendStep(list, name, value)
	}
	return list
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
