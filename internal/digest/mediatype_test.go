package digest_test

import (
	"strings"
	"testing"

	"example.com/idempotency/internal/digest"
)

func TestContentTypeSpelling(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ value, want string }{
		{"", ""},
		{" ", ""},
		{"text/plain", "text/plain"},
		{"\tTEXT/Plain ", "text/plain"},
		{"text/plain;", "text/plain"},
		{"text/plain \t;\ta=b ; ", `text/plain;a="b"`},
		{"text/plain;B=X;a=y", `text/plain;a="y";b="X"`},
		{"text/plain; charset=UTF-8", `text/plain;charset="utf-8"`},
		{`text/plain; charset="UTF-8"`, `text/plain;charset="utf-8"`},
		{`text/plain;a=" b, c=d" ;f=g`, `text/plain;a=" b, c=d";f="g"`},
		{`text/plain;a="" ; b=c`, `text/plain;a="";b="c"`},
		{"a!#$%&'*+-.^_`|~9/z;a=b", "a!#$%&'*+-.^_`|~9/z;a=\"b\""},
		{"a/b;h=1;g=1;f=1;e=1;d=1;c=1;b=1;a=1", `a/b;a="1";b="1";c="1";d="1";e="1";f="1";g="1";h="1"`},
	} {
		if got, _ := digest.NormalizeType(tt.value); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.value, got, tt.want)
		}
	}
}

// Parsers read these in different ways, and package mime refuses some of them.
func TestContentTypeThatIsNotPlainIsKept(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"Text", "Text/", "/Plain", "Text/Plain/x", "Te xt/Plain", "Text/Plain, a/b", "Text/Pläin",
		"Text/Plain;A", "Text/Plain;A=", "Text/Plain;=b", "Text/Plain;A =b", "Text/Plain;A= b", "Text/Plain;A=b c",
		`Text/Plain;A="b`, `Text/Plain;A="b\`, `Text/Plain;A="b\"`, `Text/Plain;A="b"c`, `Text/Plain;A=b"c"`,
		"Text/Plain;A=b;A=b", "Text/Plain;A=b;a=c", "Text/Plain;A=b;c=d;a=e",
		`Text/Plain;A="\b"`, `Text/Plain;A="\\"`, `Text/Plain;A="\"" ; B=c`, `Text/Plain;A=b;C="\(d"`,
		"Text/Plain;;", "Text/Plain;;A=b", "Text/Plain; ;A=b", "Text/Plain;A=b;;", "Text/Plain;A=b; ;", "Text/Plain;A=b;;C=d",
		"Text/Plain;A*=us-ascii''b", "Text/Plain;A*0=b;A*1=c", "Text/Plain;*=b",
		`Text/Plain;A="b;C=d"`, "Text/Plain;A=\"b\nc\"", "Text/Plain;A=\"b\tc\"", "Text/Plain;A=\"b\x7f\"", `Text/Plain;A="bä"`,
		`Text/Plain;A="b" c`, `Text/Plain;A="b"C=d`,
		"Text/Plain;A=1;B=1;C=1;D=1;E=1;F=1;G=1;H=1;I=1",
	} {
		if got, ok := digest.NormalizeType(" " + value); ok || got != value {
			t.Errorf("%q: got %q, %v", value, got, ok)
		}
	}
}

func TestBoundary(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("b", 70)
	for _, tt := range []struct{ value, want string }{
		{"multipart/form-data; boundary=b", "b"},
		{"MULTIPART/FORM-DATA; a=b; BOUNDARY=\"B:'()+_,-./:=?\"", "B:'()+_,-./:=?"},
		{"multipart/form-data; boundary=" + longest, longest},
		{"multipart/form-data; boundary=" + longest + "b", ""},
		{"multipart/form-data", ""},
		{"multipart/form-data; boundary", ""},
		{`multipart/form-data; boundary=""`, ""},
		{`multipart/form-data; boundary="a b"`, ""},
		{`multipart/form-data; boundary="a\b"`, ""},
		{`multipart/form-data; boundary="a\:b"`, ""},
		{`multipart/form-data; boundary="a;b"`, ""},
		{`multipart/form-data; boundary=b; x="\y"`, ""},
		{"multipart/form-data; boundary=b;", "b"},
		{"multipart/form-data; boundary=b;;", ""},
		{"multipart/form-data;; boundary=b", ""},
		{"multipart/form-data; boundary=\"\x7f\"", ""},
		{"multipart/form-data; boundary=b; boundary*=us-ascii''c", ""},
		{"multipart/form-data; boundary*0=b; boundary=b", ""},
		{"multipart/form-data; boundary=b; x*=us-ascii''c", ""},
		{"multipart/mixed; boundary=b", ""},
		{"multipart; boundary=b", ""},
		{"multiparts/form-data; boundary=b", ""},
		{"text/plain; boundary=b", ""},
	} {
		if got := digest.Boundary(tt.value); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.value, got, tt.want)
		}
	}
}
