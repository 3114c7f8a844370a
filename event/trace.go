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
	// Cause is why the run has left its key held, if it has and the record tells: a run of an earlier version does not
	// say. Held is when it said so, by the clock of its process. It is zero of a run that has not ended, as CauseLapsed
	// says. Status is that of the answer with which the run ended, or 0.
	Cause  Cause
	Held   time.Time
	Status int
}

// A DecisionInfo is what a record tells of a decision about it.
type DecisionInfo struct {
	// ID is that of the event and of the line of the log.
	ID string
	// Made is when it was made, by the clock of the process.
	Made time.Time
	// Outcome is what was said. It is 0 of a decision to forget the record.
	Outcome Outcome
	// From is the state that the record was in: held, or any if it was forgotten.
	From string
	// Attempt is the run that it was about.
	Attempt int
	// Actor and Reason say who has decided, and why. A record keeps 100 bytes of the one and 380 of the other; what
	// is longer ends with an ellipsis here, and is whole in the event.
	Actor, Reason string
}
