package proxy

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// This file is what the proxy makes of its service: which outcome a run has that got no answer, and what the
// client is told of it. A complete answer is judged by the library, unless the service says its outcome itself.

// outcomeField is how a service says its outcome. Neither clients nor other services get to see it.
const outcomeField = "Idempotency-Outcome"

// words are the values of outcomeField.
var words = map[string]idempotency.Outcome{
	"final": idempotency.Final, "not-executed": idempotency.NotExecuted, "unknown": idempotency.Unknown,
}

// said returns the outcome that a header names, or 0 if it names none. A word that nobody knows, or two of
// them, are [idempotency.Unknown]: the service wanted to say something, and nobody knows what.
func said(h http.Header) idempotency.Outcome {
	values := h[outcomeField]
	if len(values) == 0 {
		return 0
	}
	if o := words[strings.TrimSpace(values[0])]; len(values) == 1 && o != 0 {
		return o
	}
	return idempotency.Unknown
}

// A fate is how a request ended to which the service gave no whole answer.
type fate int

const (
	unsent fate = iota // not a byte of it has left the proxy
	broken             // the connection broke after that
	silent             // the service has said nothing for too long
)

// verdicts say what each fate means.
var verdicts = [...]struct {
	name    string
	outcome idempotency.Outcome // of a run
	code    problem.Code        // what the client of a run is told
	bare    int                 // the status without a run
	detail  string
}{
	unsent: {"unsent", idempotency.NotExecuted, problem.TryLater, http.StatusBadGateway, "The service behind this proxy cannot be reached. This request has not reached it."},
	broken: {"broken", idempotency.Unknown, problem.NoAnswer, http.StatusBadGateway, "The service behind this proxy gave no answer. Nobody knows what it has done."},
	silent: {"silent", idempotency.Unknown, problem.NoAnswer, http.StatusGatewayTimeout, "The service behind this proxy gave no answer in time. Nobody knows what it has done."},
}

// recoveryOf returns the policy that a word names.
func recoveryOf(word string) (idempotency.Recovery, error) {
	switch n, after := strings.CutPrefix(word, "hold-after-"); {
	case word == "rerun":
		return idempotency.Rerun, nil
	case word == "hold":
		return idempotency.Hold, nil
	case after:
		if n, err := strconv.Atoi(n); err == nil {
			return idempotency.HoldAfter(n), nil
		}
	}
	return 0, fmt.Errorf("recovery: %q must be rerun, hold or hold-after-N", word)
}

// fingerprintOf returns the function that a word names.
func fingerprintOf(word string) (idempotency.FingerprintFunc, error) {
	list, ok := strings.CutPrefix(word, "fields:")
	switch {
	case word == "raw":
		return idempotency.RawFingerprint, nil
	case word == "json":
		return idempotency.JSONFingerprint, nil
	case !ok:
		return nil, fmt.Errorf("fingerprint: %q must be raw, json or fields:a,b", word)
	}
	// A name that is in no body does not count, so each payload would be the same as any other.
	fields := strings.Split(list, ",")
	for i, name := range fields {
		fields[i] = strings.TrimSpace(name)
		if !isPath(fields[i]) {
			return nil, fmt.Errorf("fingerprint: %q: field %q must be a name, or names with dots between them", word, fields[i])
		}
	}
	var f idempotency.FingerprintFunc
	if err := panicOf(func() { f = idempotency.FieldsFingerprint(fields...) }); err != nil {
		return nil, fmt.Errorf("fingerprint: %q: %w", word, err)
	}
	return f, nil
}

// panicOf returns as an error what a function panics with. Some take a mistake for one of the program, and here it is
// one of the configuration.
func panicOf(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	f()
	return nil
}
