package event

import "slices"

// A Cause says why a key is held: of a [Held]. The values are stable, and meant to be used as metric labels.
type Cause string

// The causes of a hold, as far as the process that reports it knows.
const (
	// CauseUnknown: the run has ended in this process without a definite answer, on a route that does not repeat it.
	CauseUnknown Cause = "outcome-unknown"
	// CausePanic is that of a run which has panicked, or called runtime.Goexit.
	CausePanic Cause = "panic"
	// CauseStep: a step that must not be repeated may have happened.
	CauseStep Cause = "step-in-doubt"
	// CauseAttempts: it was the last attempt that idempotency.HoldAfter allows.
	CauseAttempts Cause = "last-attempt"
	// CauseCommit: the transaction of the run may have been committed.
	CauseCommit Cause = "commit-in-doubt"
	// CauseNotRecorded: the run has happened, and its answer could not be sealed or encoded.
	CauseNotRecorded Cause = "not-recorded"
	// CauseForgotten: the store has forgotten the record under a run that has made a step which must not be repeated.
	CauseForgotten Cause = "record-forgotten"
	// CauseSaid: the program has said that the outcome is [Unknown], by idempotency.Operation.SetOutcome.
	CauseSaid Cause = "said-unknown"
	// CauseLapsed: the lease of the run has ended, and it has not said why: its process died, hung or lost the store. A
	// request or idempotency.Guard.Reconcile has found that.
	CauseLapsed Cause = "lapsed"
	// CauseFound: a request or idempotency.Guard.Reconcile has found the key held in the store. The run has ended so in another
	// process, which has reported why. Of a run that began under an earlier version, it may also be what CauseLapsed says.
	CauseFound Cause = "found"
)

var causes = []Cause{CauseUnknown, CausePanic, CauseStep, CauseAttempts, CauseCommit, CauseNotRecorded, CauseForgotten, CauseSaid, CauseLapsed, CauseFound}

// Causes returns all causes. A counter that starts at zero for each of them shows the first hold as an increase.
func Causes() []Cause { return slices.Clone(causes) }
