package engine

import "fmt"

// TaskSettings are what the options of one call of Do or Step say.
type TaskSettings struct {
	Codec      Codec // nil for JSON
	Payload    []byte
	AtMostOnce bool
	Reference  string
}

// TaskSettingsOf returns what options say, of which those that are nil say nothing.
func TaskSettingsOf[O interface{ ApplyTask(*TaskSettings) }](opts []O) (t TaskSettings) {
	for _, o := range opts {
		if any(o) != nil {
			o.ApplyTask(&t)
		}
	}
	return t
}

// checkStep returns an error if the options are not for a step, or not for one in a transaction.
func (t *TaskSettings) checkStep(transacts bool) error {
	switch {
	case t.Payload != nil:
		return fmt.Errorf("%w: WithPayload is an option of Do: a step is found by its name", ErrStepMisuse)
	case t.Reference != "":
		return fmt.Errorf("%w: ForReference is an option of Do: a step is found with its run", ErrStepMisuse)
	case t.AtMostOnce && transacts:
		return fmt.Errorf("%w: AtMostOnce and a transaction: the transaction is at most once already", ErrStepMisuse)
	}
	return nil
}
