package jcs_test

import (
	"errors"
	"slices"
	"testing"

	"example.com/idempotency/internal/jcs"
	"github.com/stretchr/testify/require"
)

func TestParsePath(t *testing.T) {
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
		{"customer.id.x", `!"c\n1"`},
		{"customer.tags", `=["x","y"]`},
		{"customer.tags.x", `[!"x",!"y",]`},
		{"memo.x", "!null"},
		{"items.sku", `[="a",=null,-,!7,[="b",],]`},
		{`a\.b.\\`, "=true"},
		{"a.b", "-"},
	}
	all, err := jcs.Read([]byte(src))
	require.NoError(t, err)
	defer all.Free()
	for _, tt := range tests {
		path, err := jcs.ParsePath(tt.path)
		require.NoError(t, err)
		if got, err := all.Select(path); err != nil || string(got) != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.path, got, err, tt.want)
		}
	}
}

// TestSelectInArray shows that the elements of an array at the top are searched, too.
func TestSelectInArray(t *testing.T) {
	d, err := jcs.Read([]byte(`[{"a":1},{"a":2}]`))
	require.NoError(t, err)
	defer d.Free()
	if got, err := d.Select(jcs.Path{"a"}); err != nil || string(got) != "[=1,=2,]" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSelectRefuses(t *testing.T) {
	for _, src := range []string{"", "{", `{"a":1,"a":2}`, `{"a":1,"b":"\ud800"}`} {
		if _, err := jcs.Read([]byte(src)); err == nil {
			t.Errorf("%q is read", src)
		}
	}
	for _, src := range []string{`{"A":1}`, `[{"a":1},{"A":1}]`} {
		d, err := jcs.Read([]byte(src))
		require.NoError(t, err)
		if got, err := d.Select(jcs.Path{"a"}); !errors.Is(err, jcs.ErrCase) || got != nil {
			t.Errorf("in %q it finds %q, %v", src, got, err)
		}
		d.Free()
	}
}
