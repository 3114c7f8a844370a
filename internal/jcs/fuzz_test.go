package jcs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"example.com/idempotency/internal/jcs"
)

// FuzzCanonicalJSON compares Canonical with encoding/json. Canonical refuses every text that
// encoding/json refuses. A text that it accepts means the same to encoding/json in canonical
// form, and the canonical form is a fixed point.
func FuzzCanonicalJSON(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,2.50,-0],"a":{"\u0041":"\ud83d\ude00","\n":null}}`,
		`[1e20,1e21,1e-6,1e-7,123456789012345678901234567890]`,
		`[333333333.33333329,0.1e-5,5e-324,1e400]`,
		`{"a":1,"a":2}`, `"\ud800"`, "\"\xff\"", `[[[[]]]]`, "\"\U00010000\ufffd\"", ` true `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := jcs.Canonical(nil, src)
		if valid := json.Valid(src); (err == nil && !valid) || (errors.Is(err, jcs.ErrSyntax) && valid) {
			t.Fatalf("%q: valid is %v, but Canonical says %v", src, valid, err)
		}
		if err != nil {
			return
		}
		again, err := jcs.Canonical(nil, got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q: not a fixed point: %q gives %q, %v", src, got, again, err)
		}
		if before, after := decode(t, src), decode(t, got); before != after {
			t.Fatalf("%q means %s, but %q means %s", src, before, got, after)
		}
	})
}

// decode returns what encoding/json reads from src, with doubles for numbers where
// they fit, in a notation that shows types.
func decode(t *testing.T, src []byte) string {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(src))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%q: %v", src, err)
	}
	return fmt.Sprintf("%#v", doubles(v))
}

func doubles(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return "out of range"
		}
		return f + 0 // turns -0 into 0
	case []any:
		for i := range v {
			v[i] = doubles(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = doubles(v[name])
		}
	}
	return v
}
