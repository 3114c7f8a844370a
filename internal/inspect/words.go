package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency"
)

// Outcomes are the decisions about a held record, as they are written. The word for removing it is forget.
var Outcomes = map[string]idempotency.Outcome{
	"final": idempotency.Final, "not-executed": idempotency.NotExecuted, "resume": idempotency.Resume,
}

// order is that in which they are told.
var order = []string{"final", "not-executed", "resume"}

// Names lists names for people: none is a dash.
func Names(list []string) string {
	if len(list) == 0 || list[0] == "" {
		return "-"
	}
	return strings.Join(list, ", ")
}

// quoted lists names in a sentence.
func quoted(list []string) string {
	quotes := make([]string, len(list))
	for i, name := range list {
		quotes[i] = strconv.Quote(name)
	}
	return strings.Join(quotes, ", ")
}

// Span says how long something lasts, as exactly as a person needs it.
func Span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
