package rpc

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// A Schema is what a server knows of a type of messages. It returns that of the message in a field, and
// nil for a field that it does not know, or that holds no message.
type Schema func(field uint64) Schema

// InOrder returns an encoded message with the fields of each message that the schema knows in the order of
// their numbers. Those of one number stay in their order, because that is the order of a list.
//
// Encoders write what they know first, and fields of a oneof behind others. So two versions of a server
// write a message in different ways if one of them knows a field more.
func InOrder(message []byte, known Schema) []byte {
	return appendInOrder(make([]byte, 0, len(message)), message, known, maxRuns)
}

// maxRuns is how many runs the messages around one another may have together. One that has more counts as
// it is: the order of its fields would take far more memory than they do.
const maxRuns = 4096

// A run is what fields of one number that follow each other take of a message.
type run struct {
	number   uint64
	from, to int
}

func appendInOrder(dst, message []byte, known Schema, room int) []byte {
	runs := runsOf(message, room)
	if len(runs) > room {
		return append(dst, message...)
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.from, b.from)) })
	for _, r := range runs {
		fields, inner := message[r.from:r.to], known(r.number)
		for inner != nil && len(fields) > 0 {
			_, content, end := field(fields)
			if content == 0 { // of another kind than the schema says
				content = end
			}
			dst = append(dst, fields[:content]...)
			dst = appendInOrder(dst, fields[content:end], inner, room-len(runs))
			fields = fields[end:]
		}
		dst = append(dst, fields...)
	}
	return dst
}

// runsOf returns the runs of a message, but not many more than there is room for.
func runsOf(message []byte, room int) (runs []run) {
	for at := 0; at < len(message) && len(runs) <= room; {
		number, _, size := field(message[at:])
		if last := len(runs) - 1; last >= 0 && runs[last].number == number {
			runs[last].to += size
		} else {
			runs = append(runs, run{number, at, at + size})
		}
		at += size
	}
	return runs
}

// unreadable is the number of what cannot be read as fields. It comes last.
const unreadable = math.MaxUint64

// field returns the number of the first field of a message, and where it ends. If it has bytes, which may be
// a message, content is where they begin.
func field(message []byte) (number uint64, content, end int) {
	for groups := 0; ; {
		tag, n := binary.Uvarint(message[end:])
		if n <= 0 {
			return unreadable, 0, len(message)
		}
		if end == 0 {
			number = tag >> 3
		}
		end += n
		size := uint64(0)
		switch tag & 7 {
		case 0, 2:
			v, n := binary.Uvarint(message[end:])
			if n <= 0 {
				return unreadable, 0, len(message)
			}
			end += n
			if tag&7 == 2 {
				size = v
				if groups == 0 {
					content = end
				}
			}
		case 1:
			size = 8
		case 3:
			groups++
		case 4:
			groups--
		case 5:
			size = 4
		default:
			return unreadable, 0, len(message)
		}
		if size > uint64(len(message)-end) {
			return unreadable, 0, len(message)
		}
		end += int(size)
		if groups <= 0 {
			return number, content, end
		}
	}
}
