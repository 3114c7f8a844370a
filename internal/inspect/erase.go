package inspect

// An Erased is what was erased of a tenant, or would be.
type Erased struct {
	Type       string `json:"type"`
	DryRun     bool   `json:"dry_run" jsonschema:"nothing was changed"`
	Completed  int    `json:"completed" jsonschema:"erased, with an answer: a retry of these keys runs again"`
	Unanswered int    `json:"unanswered" jsonschema:"erased, without an answer"`
	Held       int    `json:"held" jsonschema:"erased, although nobody knows whether they have happened"`
	HeldLeft   int    `json:"held_left" jsonschema:"not erased, because they are held"`
	InFlight   int    `json:"in_flight" jsonschema:"not erased, because they run"`
	Changed    int    `json:"changed" jsonschema:"not erased, because they changed meanwhile"`
	Seen       string `json:"seen,omitempty" jsonschema:"of a dry run of the console: what an erasing takes as seen"`
	Actor      string `json:"actor,omitempty"`
	Reason     string `json:"reason,omitempty"`
}
