package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"example.com/idempotency/internal/token"
)

// This file says what a record can be found by besides its key. Nothing depends on it: a request in which it is not
// there, or not once, is protected like any other, and is found by its key alone.

// referenceOf returns the function that a word names, or nil.
func referenceOf(word string) (func(*http.Request, []byte) string, error) {
	kind, name, _ := strings.Cut(word, ":")
	switch {
	case word == "":
		return nil, nil
	case kind == "header" && token.Is(name):
		name = textproto.CanonicalMIMEHeaderKey(name)
		return func(r *http.Request, _ []byte) string { value, _ := once(r, name); return value }, nil
	case kind == "field" && isPath(name):
		path := strings.Split(name, ".")
		return func(_ *http.Request, body []byte) string { return valueAt(body, path) }, nil
	}
	return nil, fmt.Errorf("reference: %q must be header:NAME, or field:NAME with dots between the names in a JSON body", word)
}

// isPath reports whether a word is names with dots between them.
func isPath(word string) bool {
	for part := range strings.SplitSeq(word, ".") {
		if part == "" || strings.TrimSpace(part) != part || strings.HasPrefix(part, "/") || strings.HasPrefix(part, "$") {
			return false
		}
	}
	return true
}

// valueAt returns the text or the number, as it is spelled, at a path of a JSON body. It is empty if there is none.
func valueAt(body []byte, path []string) string {
	var value any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return ""
	}
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}
