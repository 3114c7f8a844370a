package main

import (
	"strings"
	"time"

	"example.com/idempotency/internal/inspect"
)

var recordHead = []string{"RECORD", "ROUTE", "STATE", "CAUSE", "ATTEMPT", "AGE", "RECORDED", "IN DOUBT", "ENDS"}

// inRecords shows records of any state, and inSearch those that somebody looks for.
var inRecords, inSearch = layout{recordHead, cells, false}, layout{recordHead, cells, true}

// cells are the row of a record under recordHead.
func cells(r inspect.Record) []string {
	ends := "never"
	if r.Ends != nil {
		ends = "in " + span(*r.Ends)
	}
	return []string{
		r.Record, inspect.Names([]string{r.Route}), stateOf(r), inspect.Names([]string{causeOf(r.Cause, r.Answered)}), number(r.Attempt), span(r.Age),
		inspect.Names(r.Steps), r.Doubtful(), ends,
	}
}

// stateOf is a state, with the status of the recorded answer.
func stateOf(r inspect.Record) string { return causeOf(r.State, r.Status) }

// causeOf is a cause, with the status that came with it.
func causeOf(cause string, status int) string {
	if status == 0 {
		return cause
	}
	return cause + " " + number(status)
}

// span says how long so many seconds are.
func span(seconds int64) string { return inspect.Span(time.Duration(seconds) * time.Second) }

// named returns the name of a record that an argument is.
func named(arg string) (string, error) {
	name := strings.TrimSpace(arg)
	if _, err := inspect.Named(name); err != nil {
		return "", usage("%w; idem find has it for a key of a client", err)
	}
	return name, nil
}
