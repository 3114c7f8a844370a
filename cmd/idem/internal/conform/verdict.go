package conform

import "fmt"

// A Result is what a check has shown.
type Result string

// The results. NotTried is neither: something was missing that the check needs.
const (
	Holds    Result = "holds"
	Fails    Result = "fails"
	NotTried Result = "not-tried"
)

// A verdict is the result of a check, and what was expected or missing.
type verdict struct {
	result           Result
	expected, reason string
}

var holds = verdict{result: Holds}

func fails(expected string, args ...any) verdict {
	return verdict{result: Fails, expected: fmt.Sprintf(expected, args...)}
}

func untried(reason string, args ...any) verdict {
	return verdict{result: NotTried, reason: fmt.Sprintf(reason, args...)}
}

// when holds if a condition is true, and fails otherwise.
func when(ok bool, expected string, args ...any) verdict {
	if ok {
		return holds
	}
	return fails(expected, args...)
}
