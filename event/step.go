package event

// A StepResult is how an idempotency.Step ended.
type StepResult string

// The results of steps.
const (
	// StepRecorded: the function ran, and its value or permanent error was recorded.
	StepRecorded StepResult = "recorded"
	// StepFound: an earlier attempt had recorded the step, and the function did not run.
	StepFound StepResult = "found"
	// StepFailed: the function returned an error, which is not recorded.
	StepFailed StepResult = "failed"
	// StepNotDone: the function returned an error marked with idempotency.NotDone.
	StepNotDone StepResult = "not-done"
	// StepNotRecorded: the function ran, and its result could not be recorded.
	StepNotRecorded StepResult = "not-recorded"
	// StepNotBegun: the function did not run; see the errors of idempotency.Step.
	StepNotBegun StepResult = "not-begun"
	// StepUncertain: the mark of an earlier attempt was found, and the function did not run.
	StepUncertain StepResult = "uncertain"
)
