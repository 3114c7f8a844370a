package memory

// What callers see of a record.

import (
	"bytes"
	"time"

	"example.com/idempotency/store"
)

// see puts the record as it is at the moment, without its steps, into out, which must be empty. A Record is
// large, so it is handed on by its address.
func (sh *shard) see(out *store.Record, r entry, now int64) {
	notes, answer := sh.values.Value(*r.value)
	out.State, out.Attempt, out.Owner, out.Fingerprint = r.stateAt(now), int(r.attempt), r.owner, r.fingerprint
	out.TTL, out.Age = time.Duration(r.expires-now), time.Duration(now-r.touched)
	out.Notes, out.Label = notes, sh.labels.Text(r.label)
	if r.state == store.Completed {
		out.Answer, out.Status = answer, int(r.status)
		if rare := sh.records.rareOf(r); rare != nil && rare.large != nil {
			out.Answer = rare.large
		}
		if out.Answer == nil { // an empty one, and there are no notes
			out.Answer = []byte{}
		}
		out.Size = int64(len(out.Answer))
	}
	if r.expires == never {
		out.TTL = store.Forever
	}
	if out.State == store.Claimed {
		out.Lease = max(0, r.lease-out.Age)
	}
}

// outline returns what queries ask about a record. It does not look for the value.
func (sh *shard) outline(r entry, now int64) store.Record {
	return store.Record{State: r.stateAt(now), Label: sh.labels.Text(r.label), Age: time.Duration(now - r.touched)}
}

// sealedKey returns a copy of the sealed key, or nil if there is none.
func (sh *shard) sealedKey(r entry) []byte {
	rare := sh.records.rareOf(r)
	if rare == nil || rare.sealedKey == "" {
		return nil
	}
	return []byte(rare.sealedKey)
}

// stepsByName returns the steps as a new map.
func (sh *shard) stepsByName(r entry) map[string][]byte {
	rare := sh.records.rareOf(r)
	if rare == nil || len(rare.steps) == 0 {
		return nil
	}
	steps := make(map[string][]byte, len(rare.steps))
	for _, step := range rare.steps {
		steps[step.name] = step.value
	}
	return steps
}

// resolvedTo reports whether the record is as Resolve leaves it.
func (sh *shard) resolvedTo(r entry, s store.Settlement) bool {
	var out store.Record
	sh.see(&out, r, 0)
	switch {
	case !r.is(byHand):
		return false
	case len(s.Note) > 0 && !bytes.Equal(store.LastDecision(out.Notes), s.Note):
		return false // It was the decision of somebody else.
	case s.Completion != nil:
		return r.state == store.Completed && bytes.Equal(out.Answer, s.Completion.Answer)
	}
	rare := sh.records.rareOf(r)
	for name := range s.Undone {
		if rare.step(name) != nil {
			return false
		}
	}
	return r.state == store.Released
}

// hasSteps reports whether the record has these steps with these values.
func (sh *shard) hasSteps(r entry, steps map[string][]byte) bool {
	rare := sh.records.rareOf(r)
	for name, value := range steps {
		if step := rare.step(name); step == nil || !bytes.Equal(step.value, value) {
			return false
		}
	}
	return true
}
