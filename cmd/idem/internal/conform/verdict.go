package conform

import (
	"fmt"

	"example.com/idempotency/cmd/idem/internal/conform/report"
)

// A verdict is the result of a check, and what was expected or missing.
type verdict struct {
	result           report.Result
	expected, reason string
	off              int // by how many effects it fails, if it does by their number
}

var holds = verdict{result: report.Holds}

func fails(expected string, args ...any) verdict {
	return verdict{result: report.Fails, expected: fmt.Sprintf(expected, args...)}
}

func untried(reason string, args ...any) verdict {
	return verdict{result: report.NotTried, reason: fmt.Sprintf(reason, args...)}
}

// when holds if a condition is true, and fails otherwise.
func when(ok bool, expected string, args ...any) verdict {
	if ok {
		return holds
	}
	return fails(expected, args...)
}
