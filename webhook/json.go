package webhook

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/jcs"
)

// JSONKey returns a function that takes the key from a member of a JSON body. The path to
// it is the names of members separated by dots, for example "data.id". Write a backslash
// before a dot or a backslash that is part of a name, as for
// [idempotency.FieldsFingerprint]. The member must be a string or a number.
//
// A body in which the member is absent, null or empty has no key. The function refuses a
// body that is not a JSON object, or in which the member is anything else.
//
// JSONKey panics if the path is malformed or has an empty name.
func JSONKey(path string) idempotency.KeyFunc {
	names, err := jcs.ParsePath(path)
	if err != nil {
		panic(fmt.Sprintf("webhook: JSONKey: %q is not a path of names separated by dots", path))
	}
	return func(_ *http.Request, body []byte) (string, error) { return jsonMember(body, names...) }
}

// jsonMember returns the string or number at a path in a JSON object. It compares names
// exactly. If a name occurs twice the last one counts, as for encoding/json.
func jsonMember(body []byte, path ...string) (string, error) {
	value := json.RawMessage(body)
	for depth, name := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			return "", err
		}
		if depth == 0 && object == nil {
			return "", errors.New("webhook: the body is null")
		}
		if value = object[name]; value == nil {
			return "", nil
		}
	}
	var text *string
	if json.Unmarshal(value, &text) == nil {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	var number json.Number
	err := json.Unmarshal(value, &number)
	return number.String(), err
}

// jsonDigest makes a key of members that name an event only together, all of which must be there.
// They cannot run into each other, and the key has the same length for all events.
func jsonDigest(body []byte, names ...string) (string, error) {
	var parts []string
	for _, name := range names {
		part, err := jsonMember(body, name)
		if err == nil && part == "" {
			err = errors.New("webhook: the member " + name + ", which is part of the event's name, is missing")
		}
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	sum := digest.Intent(parts...)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}
