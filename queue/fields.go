package queue

import (
	"example.com/idempotency/internal/jcs"
)

// Fields returns a function that takes the [Message.Payload] from a JSON body: only the given fields
// count. It is for messages in which something else changes between deliveries, such as a counter of
// deliveries or the time of sending.
//
// A field is a path of member names separated by dots, as for [idempotency.FieldsFingerprint], and
// counts by its meaning, as for [idempotency.JSONFingerprint]. The names of the fields count too. A
// body that is not JSON, or that parsers read in different ways, counts byte for byte.
//
// Fields panics if there are no fields or if a path is malformed.
func Fields(paths ...string) func(body []byte) []byte {
	if len(paths) == 0 {
		panic("queue: Fields: no fields")
	}
	var names []byte
	parsed := make([]jcs.Path, len(paths))
	for i, path := range paths {
		var err error
		if parsed[i], err = jcs.ParsePath(path); err != nil {
			panic("queue: Fields: " + err.Error())
		}
		names = append(append(names, path...), '\n')
	}
	return func(body []byte) []byte {
		selected, err := jcs.Select(append([]byte("fields\n"), names...), body, parsed)
		if err != nil {
			return append([]byte("body\n"), body...)
		}
		return selected
	}
}
