package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"example.com/idempotency"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/jcs"
)

// JSONKey returns a function that takes the key from a member of a JSON body. The path to
// it is the names of members separated by dots, for example "data.id". Write a backslash
// before a dot or a backslash that is part of a name, as for
// [idempotency.FieldsFingerprint]. The member must be a number or a string, which is valid text.
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
	value := bytes.Trim(body, jsonSpace)
	if !json.Valid(value) || value[0] != '{' {
		return "", errors.New("webhook: the body is not a JSON object")
	}
	for _, name := range path {
		switch {
		case value[0] == '{':
		case string(value) == "null":
			return "", nil
		default:
			return "", errors.New("webhook: the parent of the member " + name + " is not an object")
		}
		if value = memberOf(value, name); value == nil {
			return "", nil
		}
	}
	var text *string
	if json.Unmarshal(value, &text) == nil {
		if text == nil {
			return "", nil
		}
		if strings.ContainsRune(*text, utf8.RuneError) { // all that is no valid text is one text for encoding/json
			return "", errors.New("webhook: the member " + strings.Join(path, ".") + " is no valid text")
		}
		return *text, nil
	}
	var number json.Number
	err := json.Unmarshal(value, &number)
	return number.String(), err
}

const jsonSpace = " \t\r\n"

// memberOf returns the value of the last member with a name in an object, without the space around it, or nil.
// The object is valid JSON. encoding/json would make a copy of each member, which takes ten times as long.
func memberOf(object []byte, name string) (value []byte) {
	depth, start, isName, found := 0, 0, false, false
	for i := 0; i < len(object); i++ {
		switch c := object[i]; c {
		case '"':
			from := i
			for i++; object[i] != '"'; i++ {
				if object[i] == '\\' {
					i++
				}
			}
			if isName {
				found, isName = isText(object[from:i+1], name), false
			}
		case ':':
			if depth == 1 {
				start = i + 1
			}
		case '{', '[':
			depth++
			isName = depth == 1
		case '}', ']', ',':
			if depth == 1 && found {
				value, found = bytes.Trim(object[start:i], jsonSpace), false
			}
			if c != ',' {
				depth--
			}
			isName = depth == 1 && c == ','
		}
	}
	return value
}

// isText reports whether a string of JSON, which is valid, is a text.
func isText(quoted []byte, text string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1:len(quoted)-1]) == text
	}
	var decoded string
	return json.Unmarshal(quoted, &decoded) == nil && decoded == text
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
