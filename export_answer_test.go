package idempotency

// The stored form of an answer, for external tests.

// ErrAnswerVersion is the error of an answer that was stored by a newer version.
var ErrAnswerVersion = errAnswerVersion

// A StoredAnswer is an answer as it is stored.
type StoredAnswer struct {
	NotKept         bool
	Do              byte // the kind of a result of Do
	Status          int
	Header, Trailer []StoredField
	Body            string
}

// A StoredField is a field of a stored answer.
type StoredField struct {
	Name   string
	Values []string
}

// EncodeAnswer returns the stored form.
func EncodeAnswer(s StoredAnswer, key string, fp Fingerprint) []byte {
	a := answer{kind: answerKept, status: s.Status, body: []byte(s.Body)}
	if s.NotKept {
		a.kind = answerNotKept
	}
	if s.Do != 0 {
		a.kind = s.Do
	}
	for _, f := range s.Header {
		a.header = append(a.header, field{f.Name, f.Values})
	}
	for _, f := range s.Trailer {
		a.trailer = append(a.trailer, field{f.Name, f.Values})
	}
	return a.encode(key, fp)
}

// DecodeAnswer reads the stored form.
func DecodeAnswer(b []byte, key string, fp Fingerprint) (StoredAnswer, error) {
	a, err := decodeAnswer(b, key, fp, nil)
	if err != nil {
		return StoredAnswer{}, err
	}
	s := StoredAnswer{NotKept: a.kind == answerNotKept, Status: a.status, Body: string(a.body)}
	if a.kind == answerValue || a.kind == answerError {
		s.Do = a.kind
	}
	for _, f := range a.header {
		s.Header = append(s.Header, StoredField{f.name, f.values})
	}
	for _, f := range a.trailer {
		s.Trailer = append(s.Trailer, StoredField{f.name, f.values})
	}
	return s, nil
}
