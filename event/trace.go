package event

import (
	"encoding/hex"
	"time"
)

// A TraceContext names the span of a trace, as W3C Trace Context and OpenTelemetry do. The zero
// TraceContext is none.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// String returns the value of a traceparent field for the span, and an empty string for none.
func (t TraceContext) String() string {
	if t == (TraceContext{}) {
		return ""
	}
	b := make([]byte, 0, len("00-")+32+1+16+1+2)
	b = hex.AppendEncode(append(b, "00-"...), t.TraceID[:])
	b = hex.AppendEncode(append(b, '-'), t.SpanID[:])
	b = hex.AppendEncode(append(b, '-'), []byte{t.Flags})
	return string(b)
}

// A RunInfo is what a record tells of one of its runs.
type RunInfo struct {
	// Attempt is the number of the run.
	Attempt int
	// Started is when the run claimed the key, by the clock of its process.
	Started time.Time
	// Trace is the span that the run belongs to, if adapter.WithTraceContext is set.
	Trace TraceContext
}
