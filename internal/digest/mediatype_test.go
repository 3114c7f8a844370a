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
		{"\tText/plain ", "Text/plain"},
		{"text/plain;", "text/plain"},
		{"text/plain \t;\ta=b ; ", `text/plain;a="b"`},
		{"text/plain;b=X;a=y", `text/plain;a="y";b="X"`},
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
		"text/plain;A=b", "text/plain;a=b;C=d", "text", "text/", "/plain", "text/plain/x", "Te xt/plain", "text/plain, a/b", "text/pläin",
		"text/plain;a", "text/plain;a=", "text/plain;=b", "text/plain;a =b", "text/plain;a= b", "text/plain;a=b c",
		`text/plain;a="b`, `text/plain;a="b\`, `text/plain;a="b\"`, `text/plain;a="b"c`, `text/plain;a=b"c"`,
		"text/plain;a=b;a=b", "text/plain;a=b;a=c", "text/plain;a=b;c=d;a=e",
		`text/plain;a="\b"`, `text/plain;a="\\"`, `text/plain;a="\"" ; b=c`, `text/plain;a=b;c="\(d"`,
		"text/plain;;", "text/plain;;a=b", "text/plain; ;a=b", "text/plain;a=b;;", "text/plain;a=b; ;", "text/plain;a=b;;c=d",
		"text/plain;a*=us-ascii''b", "text/plain;a*0=b;a*1=c", "text/plain;*=b",
		`text/plain;a="b;c=d"`, "text/plain;a=\"b\nc\"", "text/plain;a=\"b\tc\"", "text/plain;a=\"b\x7f\"", `text/plain;a="bä"`,
		`text/plain;a="b" c`, `text/plain;a="b"c=d`,
		"text/plain;a=1;b=1;c=1;d=1;e=1;f=1;g=1;h=1;i=1",
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
		{"multipart/form-data; a=b; boundary=\"B:'()+_,-./:=?\"", "B:'()+_,-./:=?"},
		{"Multipart/form-data; boundary=b", ""},
		{"multipart/form-data; Boundary=b", ""},
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
