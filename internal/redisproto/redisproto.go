// Package redisproto is what the Redis store and its scripts agree on: the stored form of
// a record, the scripts with their arguments and results, and the form of their replies.
// It also reads what a server says about itself. It sends nothing: the store does.
package redisproto

import (
	"fmt"

	"example.com/idempotency/store"
)

// Damage returns an error that says what is wrong with a stored record. It is a [store.ErrCorrupt], and
// never means that there is no record.
func Damage(format string, args ...any) error {
	return fmt.Errorf("%w: redis: %w", store.ErrCorrupt, fmt.Errorf(format, args...))
}

// ErrNewer says that the record is in a form that this version does not know, or has more in it. It is no damage: the
// record is sound, and a process with the newer version can read it.
var ErrNewer = fmt.Errorf("%w: redis: record was written by a newer version of this package", store.ErrUnreadableHere)

const (
	// FieldHeader is the name of the field that is read on its own.
	FieldHeader = "m"

	fieldAnswer    = "r"
	fieldStep      = "s:" // and the name of the step
	fieldNote      = "n"
	fieldLabel     = "l"
	fieldKey       = "k"
	fieldHistory   = "h"
	fieldDecisions = "d"
	fieldTags      = "t"
)

// SummaryFields are the names of the fields that are read for a list. [ParseSummary] reads their
// values.
func SummaryFields() []string { return []string{FieldHeader, fieldNote, fieldLabel, fieldKey} }

// AnswerField returns the name of the field that a detached answer is in: one that the
// owner has stored there itself, because it is too large to travel through a script.
func AnswerField(owner store.Owner) string { return fieldAnswer + ":" + string(owner[:]) }
