package queue

import (
	"crypto/sha256"

	"example.com/idempotency/internal/jcs"
)

// Fields returns a function that takes the [Message.Payload] from a JSON body: only the given fields
// count. It is for messages in which something else changes between deliveries, such as a counter of
// deliveries or the time of sending.
//
// A field is a path of member names separated by dots, as for [idempotency.FieldsFingerprint], and
// counts by its meaning, as for [idempotency.JSONFingerprint]. The names of the fields count too. A
// body that is not JSON, or that parsers read in different ways, counts byte for byte. The payload has
// the names and a SHA-256 of the fields. The time it takes grows with the number of paths.
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
		sum, err := sumOfFields(body, parsed)
		if err != nil {
			return append([]byte("body\n"), body...)
		}
		return append(append([]byte("fields\n"), names...), sum...)
	}
}

// sumOfFields hashes what the paths find, one after the other. All together can be longer than the body
// by as many times as there are paths.
func sumOfFields(body []byte, paths []jcs.Path) ([]byte, error) {
	d, err := jcs.Read(body)
	if err != nil {
		return nil, err
	}
	defer d.Free()
	sum := sha256.New()
	for _, path := range paths {
		found, err := d.Select(path)
		if err != nil {
			return nil, err
		}
		sum.Write(found)
		sum.Write([]byte{'\n'}) // which no result has in it
	}
	return sum.Sum(nil), nil
}
