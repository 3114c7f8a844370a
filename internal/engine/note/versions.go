package note

// The versions of a note and of a decision, which are their first bytes.
const (
	Version         = version
	DecisionVersion = decisionVersion
)
