package note

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/formtest"
)

func TestStoredFormOfANote(t *testing.T) {
	t.Parallel()
	short := Note{
		Started: time.UnixMilli(0x0102_03040506),
		Sums:    digest.Checksums{Parts: [5]uint16{0x1112, 0x1314, 0x1516, 0x1718, 0x191a}},
	}
	traced := short
	traced.Trace = event.TraceContext{TraceID: [16]byte([]byte("0123456789abcdef")), SpanID: [8]byte([]byte("ghijklmn")), Flags: 1}
	of := func(name string, n Note) formtest.Case {
		return formtest.Case{
			Name: name, Encode: func() []byte { return n.AppendTo(nil) },
			Decode: func(stored []byte) (any, error) { return Read(stored), nil }, Want: n,
		}
	}
	formtest.Check(t, "note", version, of("short", short), of("traced", traced))

	newer := append([]byte{version + 1}, short.AppendTo(nil)[1:]...)
	require.Zero(t, Read(newer), "no decision depends on a note, so one that cannot be read is none")
}
