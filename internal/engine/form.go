package engine

import (
	"iter"
	"slices"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/engine/seal"
	"example.com/idempotency/store"
)

// This file is about the stored forms of what a store keeps without looking at it, for operators.

// The names of the forms.
const (
	formAnswer, formStep, formSealed        = "answer", "step", "sealed"
	formNote, formDecision, formFingerprint = "note", "decision", "fingerprint"
)

// stepVersion is that of a step, whose first byte is one of its kinds.
const stepVersion = 1

// Forms returns the forms that e writes and reads, whatever the store. A fingerprint has a version for each function of this
// module; those of other modules are read by a guard that names them.
func Forms() []store.Form {
	fingerprints := store.FormOf(formFingerprint, digest.VersionAsSent)
	fingerprints.Writes = fingerprints.Reads
	return []store.Form{
		store.FormOf(formAnswer, answer.Version), store.FormOf(formStep, stepVersion), store.FormOf(formSealed, seal.Version),
		store.FormOf(formNote, note.Version), store.FormOf(formDecision, note.DecisionVersion), fingerprints,
	}
}

// A FormVersion is a form of a part of a record, and its version. The version is 0 if nobody can tell.
type FormVersion struct {
	Form    string
	Version int
}

// FormsOf returns the forms of the parts of a record, each once. Fingerprints that functions of other modules make have no form
// of this one.
func FormsOf(rec *store.Record) (found []FormVersion) {
	add := func(form string, version int) {
		if v := (FormVersion{form, version}); !slices.Contains(found, v) {
			found = append(found, v)
		}
	}
	if fp := int(rec.Fingerprint[0]); fp > 0 && fp < digest.FirstOwnVersion {
		add(formFingerprint, fp)
	}
	if len(rec.Answer) > 0 {
		add(sealedOr(formAnswer, rec.Answer[0], int(rec.Answer[0])))
	}
	for _, value := range rec.Steps {
		switch {
		case len(value) == 0:
		case seal.IsStepKind(value[0]):
			add(formStep, stepVersion)
		default:
			add(sealedOr(formStep, value[0], 0))
		}
	}
	for form, notes := range map[string]iter.Seq[[]byte]{formNote: store.EachNote(rec.Notes), formDecision: store.EachDecision(rec.Notes)} {
		for one := range notes {
			if len(one) > 0 {
				add(form, int(one[0]))
			}
		}
	}
	return found
}

// sealedOr returns the form that a first byte says, which is sealed, or else the one that is named.
func sealedOr(form string, first byte, version int) (string, int) {
	if v, sealed := seal.VersionOf(first); sealed {
		return formSealed, v
	}
	return form, version
}
