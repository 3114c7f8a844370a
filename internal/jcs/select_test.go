package jcs_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"example.com/idempotency/internal/jcs"
)

func TestParsePath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		path string
		want jcs.Path
	}{
		{"amount", jcs.Path{"amount"}},
		{"customer.id", jcs.Path{"customer", "id"}},
		{`a\.b.c\\d`, jcs.Path{"a.b", `c\d`}},
		{"0.*[]", jcs.Path{"0", "*[]"}},
		{"größe. ", jcs.Path{"größe", " "}},
		{"", nil},
		{".", nil},
		{"a.", nil},
		{".a", nil},
		{"a..b", nil},
		{`a\`, nil},
		{`a\b`, nil},
	}
	for _, tt := range tests {
		got, err := jcs.ParsePath(tt.path)
		if !slices.Equal(got, tt.want) || (tt.want == nil) != errors.Is(err, jcs.ErrPath) {
			t.Errorf("ParsePath(%q) = %q, %v, want %q", tt.path, got, err, tt.want)
		}
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	const src = `{
		"amount": 1e2, "memo": null, "empty": {}, "none": [],
		"customer": {"id": "c\n1", "tags": ["x", "y"]},
		"items": [{"sku": "a", "n": 1}, {"sku": null}, {}, 7, [{"sku": "b"}]],
		"a.b": {"\\": true}
	}`
	tests := []struct{ path, want string }{
		{"amount", "=100"},
		{"memo", "=null"},
		{"absent", "-"},
		{"empty", "={}"},
		{"empty.x", "-"},
		{"none", "=[]"},
		{"none.x", "[]"},
		{"customer", `={"id":"c\n1","tags":["x","y"]}`},
		{"customer.id", `="c\n1"`},
		{"customer.id.x", "-"},
		{"customer.tags", `=["x","y"]`},
		{"customer.tags.x", "[-,-,]"},
		{"memo.x", "-"},
		{"items.sku", `[="a",=null,-,-,[="b",],]`},
		{`a\.b.\\`, "=true"},
		{"a.b", "-"},
	}
	var paths []jcs.Path
	var lines strings.Builder
	for _, tt := range tests {
		path, err := jcs.ParsePath(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := jcs.Select(nil, []byte(src), []jcs.Path{path})
		if err != nil || string(got) != tt.want+"\n" {
			t.Errorf("%s: got %q, %v, want %q", tt.path, got, err, tt.want+"\n")
		}
		paths = append(paths, path)
		lines.WriteString(tt.want + "\n")
	}
	got, err := jcs.Select([]byte("before "), []byte(src), paths)
	if err != nil || string(got) != "before "+lines.String() {
		t.Errorf("all together: got %q, %v", got, err)
	}
}

// TestSelectInArray shows that the elements of an array at the top are searched, too.
func TestSelectInArray(t *testing.T) {
	t.Parallel()
	got, err := jcs.Select(nil, []byte(`[{"a":1},{"a":2}]`), []jcs.Path{{"a"}})
	if err != nil || string(got) != "[=1,=2,]\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSelectRefuses(t *testing.T) {
	t.Parallel()
	for _, src := range []string{"", "{", `{"a":1,"a":2}`, `{"a":1,"b":"\ud800"}`, `{"A":1}`, `[{"a":1},{"A":1}]`} {
		got, err := jcs.Select([]byte("before"), []byte(src), []jcs.Path{{"a"}})
		if err == nil || string(got) != "before" {
			t.Errorf("Select(%q) = %q, %v", src, got, err)
		}
	}
}
