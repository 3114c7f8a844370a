package redisproto

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency/internal/history"
	"example.com/idempotency/store"
)

// A Record is what a reply says about a record.
type Record struct {
	store.Record
	// Holding says that the record is held, or claimed by a claim that says hold. The
	// [store.Record] does not tell that.
	Holding bool
	// Found says that the record is held because the lease of a claim has ended that did not
	// say hold. Only the claim that found it can enter it in the index.
	Found bool
	// Tags are those that the record can be found by. Only a list reads them.
	Tags []store.Tag
}

// ParseClaim reads the reply of the script that claims. h is the header of the claim. If
// the answer has to be read from a field of its own, ParseClaim returns the name of it.
func (h *Header) ParseClaim(reply []string) (r Record, detached string, err error) {
	if len(reply) == 2 {
		if reply[1] != string(h.Owner[:]) {
			return r, "", errors.New("the reply belongs to another claim")
		}
		r = h.record(h.expiry())
		r.Mine, r.Blank = true, true
		return r, "", nil
	}
	if len(reply) < 3 {
		return r, "", fmt.Errorf("the reply to a claim has %d values", len(reply))
	}
	found, err := parseHeader(reply[1])
	if err != nil {
		return r, "", err
	}
	ttl, err := parseTTL(reply[0])
	if err != nil {
		return r, "", err
	}
	r = found.record(ttl)
	if len(reply) >= 5 {
		r.Notes = parseNotes(reply[3], reply[4], "")
	}
	if r.Fingerprint != h.Fingerprint {
		found.holdLapsed(&r)
		return r, "", nil
	}
	switch {
	case found.State == store.Completed && found.is(flagDetached):
		detached = AnswerField(found.Owner)
	case found.State == store.Completed:
		r.Answer = []byte(reply[2])
	case found.State == store.Held:
		r.Found = found.is(flagLapsed) && !found.is(flagHold)
	case found.State == store.Claimed && found.Owner == h.Owner:
		r.Mine, r.Lapsed, r.Blank = true, found.is(flagTookOver), found.is(flagBlank)
		if len(reply) > 5 {
			r.Steps = pairs(reply[5:])
		}
	}
	return r, detached, nil
}

// parseTTL reads an expiry in milliseconds. Every record has one.
func parseTTL(s string) (time.Duration, error) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 0 || ms > most {
		return 0, Damage("impossible expiry")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// ParseGet reads the reply of the script that reads a record without its answer. The header is
// returned as it is stored, also with an error, which is [store.ErrNotFound] if there is no record.
func ParseGet(reply []string) (r Record, header string, err error) {
	if len(reply) == 1 && reply[0] == "-2" {
		return r, "", store.ErrNotFound
	}
	if len(reply) < 8 {
		return r, "", fmt.Errorf("the reply to a lookup has %d values", len(reply))
	}
	header = reply[1]
	ttl, ttlErr := parseTTL(reply[0])
	h, r, err := parse(ttl, header)
	switch {
	case err != nil: // first, because a newer version may have records without an expiry
		return Record{}, header, err
	case ttlErr != nil:
		return Record{}, header, ttlErr
	case h.State == store.Completed && reply[2] == "":
		return Record{}, header, ErrMissingAnswer
	}
	r.Notes, r.Label = parseNotes(reply[3], reply[4], reply[7]), parseLabel(reply[3], reply[5])
	r.SealedKey = optional(reply[6])
	r.Steps = pairs(reply[8:])
	return r, header, nil
}

// optional returns the value of a field, or nil if there is none.
func optional(value string) []byte {
	if value == "" {
		return nil
	}
	return []byte(value)
}

// pairs reads the names and values of steps. They are nil if there are none.
func pairs(reply []string) map[string][]byte {
	if len(reply) < 2 {
		return nil
	}
	steps := make(map[string][]byte, len(reply)/2)
	for i := 1; i < len(reply); i += 2 {
		steps[reply[i-1]] = []byte(reply[i])
	}
	return steps
}

// ParseRecord reads a whole record, given what is left of its expiry and all its fields.
func ParseRecord(ttl time.Duration, fields map[string]string) (Record, error) {
	h, r, err := parse(ttl, fields[FieldHeader])
	if err != nil {
		return Record{}, err
	}
	if h.State == store.Completed {
		field := fieldAnswer
		if h.is(flagDetached) {
			field = AnswerField(h.Owner)
		}
		answer, ok := fields[field]
		if !ok {
			return Record{}, ErrMissingAnswer
		}
		r.Answer = []byte(answer)
	}
	r.Notes = parseNotes(fields[fieldNote], fields[fieldHistory], fields[fieldDecisions])
	r.Label = parseLabel(fields[fieldNote], fields[fieldLabel])
	r.SealedKey = optional(fields[fieldKey])
	for field, value := range fields {
		if name, ok := strings.CutPrefix(field, fieldStep); ok {
			if r.Steps == nil {
				r.Steps = make(map[string][]byte)
			}
			r.Steps[name] = []byte(value)
		}
	}
	return r, nil
}

// ParseWhole reads the reply of the script that reads a record with its answer: what is left of its
// expiry, and its fields.
func ParseWhole(reply []any) (ttl time.Duration, fields map[string]string, err error) {
	if len(reply)%2 == 0 {
		return 0, nil, fmt.Errorf("the reply to a reading has %d values", len(reply))
	}
	ms, _ := reply[0].(int64)
	fields = make(map[string]string, len(reply)/2)
	for i := 2; i < len(reply); i += 2 {
		name, _ := reply[i-1].(string)
		fields[name], _ = reply[i].(string)
	}
	return time.Duration(ms) * time.Millisecond, fields, nil
}

// ErrMissingAnswer is the damage of a completed record without an answer.
var ErrMissingAnswer = Damage("answer is missing")

// ParseSummary reads a record without its answer and its steps, given what is left of its expiry and
// the values of the [SummaryFields], or of [FoundFields], of which some may be missing. Of the notes it has the last.
func ParseSummary(ttl time.Duration, values []any) (Record, error) {
	var fields [5]string
	for i, v := range values[:min(len(values), len(fields))] {
		fields[i], _ = v.(string)
	}
	header, note, label, sealedKey := fields[0], fields[1], fields[2], fields[3]
	_, r, err := parse(ttl, header)
	if err == nil {
		r.Notes, r.Label, r.SealedKey = parseNotes(note, "", ""), parseLabel(note, label), optional(sealedKey)
		r.Tags = splitTags(fields[4])
	}
	return r, err
}

// MaxNote is the greatest length of a note or a label.
const MaxNote = 64

// parseNotes returns the notes that the fields n, h and d hold. They are the list of package history,
// with an empty note for a claim that has a label and no note.
func parseNotes(last, earlier, decisions string) []byte {
	if last != "" {
		earlier += last[:min(len(last), 1+int(last[0]))]
	}
	return history.Join(history.Append(nil, []byte(earlier), nil), []byte(decisions))
}

// parseLabel returns the label that the fields n and l hold.
func parseLabel(last, label string) string {
	if last == "" || label != "" {
		return label
	}
	return last[min(len(last), 1+int(last[0])):]
}

func parse(ttl time.Duration, header string) (Header, Record, error) {
	h, err := parseHeader(header)
	if err != nil {
		return Header{}, Record{}, err
	}
	if ttl < 0 {
		return Header{}, Record{}, Damage("record does not expire")
	}
	r := h.record(ttl)
	h.holdLapsed(&r)
	return h, r, nil
}
